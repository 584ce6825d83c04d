//! The description of a recording, in the format of `perf script --header`.

use std::io::{self, Write};
use std::ops::Range;

use unspool_perf_events::DataFile;
use unspool_profile::Profile;

use unspool_files::EscapedText;

/// The description of a recording, as `perf script --header` has it.
#[derive(Debug)]
pub struct RecordingHeader<'r> {
    host: &'r str,
    kernel: &'r str,
    /// The recorder's version, as perf has it.
    tool: &'r str,
    arch: &'r str,
    cpus: Option<u32>,
    command: &'r [String],
    events: Vec<&'r str>,
    /// The times of the first and the last sample, in nanoseconds.
    times: Option<Range<u64>>,
}

impl<'r> From<&'r DataFile> for RecordingHeader<'r> {
    fn from(file: &'r DataFile) -> Self {
        let about = file.info();
        RecordingHeader {
            host: &about.host,
            kernel: &about.kernel,
            tool: &about.tool,
            arch: &about.arch,
            cpus: about.cpus,
            command: &about.command,
            events: file.events().iter().map(|event| &*event.name).collect(),
            times: about.times.clone(),
        }
    }
}

impl<'r> From<&'r Profile> for RecordingHeader<'r> {
    fn from(profile: &'r Profile) -> Self {
        let meta = profile.meta();
        let times = || profile.samples().iter().map(|sample| sample.time.0);
        RecordingHeader {
            host: &meta.host,
            kernel: &meta.kernel,
            tool: &meta.tool,
            arch: &meta.arch,
            cpus: None,
            command: &meta.command,
            events: vec![&meta.event.name],
            times: times()
                .min()
                .zip(times().max())
                .map(|(first, last)| first..last),
        }
    }
}

impl RecordingHeader<'_> {
    /// Writes it, as lines that begin with `#`.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let command: String = self.command.iter().map(|word| format!("{word} ")).collect();
        let cpus = self.cpus.map_or_else(String::new, |cpus| cpus.to_string());
        let mut lines = vec![
            ("hostname", self.host),
            ("os release", self.kernel),
            ("perf version", self.tool),
            ("arch", self.arch),
            ("nrcpus online", &cpus),
            ("cmdline", &command),
        ];
        lines.retain(|(_, value)| !value.is_empty());
        writeln!(out, "# ========")?;
        for (name, value) in lines {
            writeln!(out, "# {name} : {}", EscapedText(value))?;
        }
        for event in &self.events {
            writeln!(out, "# event : name = {}", EscapedText(event))?;
        }
        if let Some(times) = &self.times {
            let [first, last] = [times.start, times.end].map(seconds);
            writeln!(out, "# time of first sample : {first}")?;
            writeln!(out, "# time of last sample : {last}")?;
        }
        writeln!(out, "# ========\n#")
    }
}

fn seconds(time: u64) -> String {
    let micros = time / 1000;
    format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}
