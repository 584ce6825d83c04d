//! What is said of a recording, as it comes or as one document at the end.

use std::fmt::Display;
use std::fs::File;
use std::io;

use serde_json::{Value, json};
use unspool_perf::Event;
use unspool_profile::{Completeness, FileError, Grouped, Profile, share};
use unspool_sampling::{Summary, Totals};

use crate::args::{Format, RecordArgs};
use crate::commands::{exit_code, report};
use crate::output::{self, Layout};

/// How many files are named that could not be used.
const MOST_FILES: usize = 10;

/// What was said so far.
pub(super) struct Told<'a> {
    args: &'a RecordArgs,
    /// Of the document, which is written at the end.
    notices: Vec<String>,
}

impl<'a> Told<'a> {
    pub(super) fn new(args: &'a RecordArgs) -> Told<'a> {
        Told {
            args,
            notices: Vec::new(),
        }
    }

    /// Says something worth knowing.
    pub(super) fn notice(&mut self, notice: &dyn Display) {
        match self.args.format {
            _ if self.args.quiet => {}
            Format::Text => output::notice(notice),
            Format::Json => self.notices.push(notice.to_string()),
        }
    }

    /// Says what the recording came to, and what the profile that was written lacks.
    pub(super) fn end(mut self, summary: &Summary, event: &Event) -> io::Result<()> {
        if self.args.quiet {
            return Ok(());
        }
        // A pipe cannot be read again.
        let profile = File::open(&self.args.output)
            .map_err(FileError::from)
            .and_then(Profile::read)
            .ok();
        let read = profile.as_ref().map(|profile| {
            let samples: Vec<_> = profile.samples().iter().collect();
            (profile, Completeness::new(profile, &samples))
        });
        let read = read
            .as_ref()
            .map(|(profile, completeness)| (*profile, completeness));
        if self.args.format == Format::Text {
            self.summary(summary, read);
        }
        for problem in summary.unusable.iter().take(MOST_FILES) {
            self.notice(&output::with_causes(&**problem));
        }
        if summary.totals.lost > 0 {
            self.notice(
                &"samples were lost because the machine was too busy to take them in time: ask for fewer (-F)",
            );
        }
        match self.args.format {
            Format::Text => Ok(()),
            Format::Json => self.document(summary, event, read),
        }
    }

    fn summary(&mut self, summary: &Summary, read: Option<(&Profile, &Completeness)>) {
        let totals = &summary.totals;
        let lost = match totals.lost {
            0 => String::new(),
            lost => format!(", {} lost", Grouped(lost)),
        };
        self.notice(&format_args!(
            "{}: {} samples in {:.1} s{lost}",
            self.args.output.display(),
            Grouped(totals.samples),
            summary.elapsed.as_secs_f64(),
        ));
        let Some((profile, completeness)) = read else {
            return self.notice(&format_args!("{} of stacks reach a root", complete(totals)));
        };
        self.notice(&completeness.summary(profile));
        for advice in completeness.advice(profile) {
            self.notice(&advice);
        }
    }

    /// Standard output is the command's if there is one; then it is the last line of standard error.
    fn document(
        &self,
        summary: &Summary,
        event: &Event,
        read: Option<(&Profile, &Completeness)>,
    ) -> io::Result<()> {
        let totals = &summary.totals;
        let command = self.args.cmd.iter().map(|word| word.to_string_lossy());
        let completeness = read.map(|(profile, all)| report::complete(profile, all));
        let body = json!({
            "profile": self.args.output.to_string_lossy(),
            "command": command.collect::<Vec<_>>(),
            "status": summary.status.and_then(exit_code),
            "event": event.name(),
            "seconds": summary.elapsed.as_secs_f64(),
            "samples": totals.samples,
            "lost": totals.lost,
            "damaged": summary.damaged,
            "completeness": completeness.unwrap_or(Value::Null),
            "notices": self.notices,
        });
        match self.args.cmd.is_empty() {
            true => output::document("record", &body),
            false => output::write_document(&mut io::stderr(), Layout::Line, "record", &body),
        }
    }
}

/// How many of the stacks are complete.
pub(super) fn complete(totals: &Totals) -> String {
    match totals.samples - totals.without_stack {
        0 => "none".to_owned(),
        stacks => share(totals.complete, stacks),
    }
}
