//! Recordings as text, as `perf script` prints them.

use std::fmt::Display;
use std::io::{self, Write};
use std::num::NonZero;

use unspool_perf_events::{DataFile, ReadSummary};
use unspool_profile::Profile;
use unspool_symbols::{ModuleFinder, NameDetail};
use unspool_table_store::Store;

use crate::perf_import::{ImportError, Replay};

mod digits;
mod frames;
mod header;
mod profile;
mod samples;
mod text;

pub use header::RecordingHeader;
pub use text::ScriptFields;

use frames::{FrameSet, FrameTexts};
use profile::ProfileSamples;
use samples::UnwoundSamples;
use text::{Printer, SampleLine, ScriptEvent};

/// The samples of a recording, with all frames, to be printed.
///
/// ```no_run
/// use std::io;
/// use std::path::Path;
/// use unspool_perf_events::DataFile;
/// use unspool_sampler::{Script, ScriptFields};
/// use unspool_symbols::{ModuleFinder, NameDetail};
/// use unspool_table_store::Store;
///
/// let file = DataFile::open(Path::new("perf.data"))?;
/// let (finder, store) = (ModuleFinder::from_environment(), Store::from_environment());
/// let (script, _) = Script::of_recording(&file, finder, store, None)?;
/// let named = script.names(NameDetail::Lines, ScriptFields::DEFAULT, &mut |problem| {
///     eprintln!("{problem}");
/// });
/// named.write(false, &mut io::stdout().lock())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Script<'r> {
    events: Vec<ScriptEvent<'r>>,
    samples: ScriptSamples<'r>,
    frames: FrameSet,
}

/// What a kind of recording stores of its samples.
#[derive(Debug)]
enum ScriptSamples<'r> {
    Unwound(UnwoundSamples),
    Profile(ProfileSamples<'r>),
}

impl<'r> Script<'r> {
    /// Unwinds the samples of a recording by perf, to that many frames. The summary reports its
    /// damaged parts.
    ///
    /// # Errors
    ///
    /// [`ImportError`].
    pub fn of_recording(
        file: &'r DataFile,
        finder: ModuleFinder,
        store: Store,
        max_frames: Option<NonZero<usize>>,
    ) -> Result<(Script<'r>, ReadSummary), ImportError> {
        let mut samples = UnwoundSamples::new(max_frames);
        let mut frames = FrameSet::default();
        let mut replay = Replay::new(file, finder, store)?;
        let reading = file.read(|item| samples.take(file, &item, &mut replay, &mut frames))?;
        let script = Script {
            events: file.events().iter().map(ScriptEvent::from).collect(),
            samples: ScriptSamples::Unwound(samples),
            frames,
        };
        Ok((script, reading))
    }

    /// The samples of a profile, each with at most that many frames.
    #[must_use]
    pub fn of_profile(
        profile: &'r Profile,
        finder: &ModuleFinder,
        max_frames: Option<NonZero<usize>>,
    ) -> Script<'r> {
        Script {
            events: profile::events(profile),
            samples: ScriptSamples::Profile(ProfileSamples::new(profile, max_frames)),
            frames: profile::frames(profile, finder),
        }
    }

    /// Files of frames that cannot be used, and why.
    pub fn problems(&self) -> impl Iterator<Item = &str> {
        self.frames.problems.values().map(String::as_str)
    }

    /// Looks up the names of all frames. Files without names are reported to `notice`.
    pub fn names(
        &self,
        detail: NameDetail,
        fields: ScriptFields,
        notice: &mut dyn FnMut(&dyn Display),
    ) -> NamedScript<'_> {
        NamedScript {
            script: self,
            fields,
            texts: self.frames.look_up(detail, fields, notice),
        }
    }
}

/// The samples of a recording, with the text of their frames.
#[derive(Debug)]
pub struct NamedScript<'s> {
    script: &'s Script<'s>,
    fields: ScriptFields,
    texts: FrameTexts,
}

impl NamedScript<'_> {
    /// Writes all samples, with times in microseconds or nanoseconds.
    ///
    /// # Errors
    ///
    /// They cannot be written.
    pub fn write(&self, in_nanoseconds: bool, out: &mut dyn Write) -> io::Result<()> {
        let mut printer = Printer::new(&self.script.events, self.fields, in_nanoseconds, out);
        let mut print = |sample: &SampleLine, name: &[u8], stack: &[u32]| {
            printer.print(sample, name, stack, &self.texts)
        };
        match &self.script.samples {
            ScriptSamples::Unwound(samples) => samples.each(&mut print)?,
            ScriptSamples::Profile(samples) => samples.each(&mut print)?,
        }
        printer.finish()
    }
}
