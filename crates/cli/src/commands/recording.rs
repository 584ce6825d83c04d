//! Recordings, of perf and of unspool, distinguished by their first bytes.

use std::io::{self, BufReader, Read as _, Seek as _};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use unspool_files::{Input, open_input};
use unspool_perf_events::{DataFile, ReadSummary};
use unspool_profile::{FileEnding, Profile};
use unspool_symbols::ModuleFinder;

use crate::commands::{MAX_PROBLEMS_PRINTED, store};
use crate::output;

/// The default recordings: the first that exists.
const DEFAULTS: [&str; 2] = ["unspool.prof", "perf.data"];

/// The path of a recording: `-` is standard input.
pub(super) fn named_or_default(named: Option<&Path>) -> anyhow::Result<&Path> {
    match named {
        Some(path) if path.as_os_str() == "-" => Ok(Path::new("/dev/stdin")),
        Some(path) => Ok(path),
        None => (DEFAULTS.iter().map(Path::new))
            .find(|path| path.exists())
            .context("no unspool.prof here: record one with `unspool record CMD`, or name a FILE"),
    }
}

/// A recording.
pub(super) enum Recording {
    /// A recording by `perf record`.
    Perf(DataFile),
    /// A profile by `unspool record`.
    Unspool(Profile),
}

impl Recording {
    /// Opens a file, or reads a pipe to its end. Warns on standard error if a profile is truncated.
    pub(super) fn open(path: &Path) -> anyhow::Result<Recording> {
        let open = || {
            let mut start = Vec::new();
            Ok(match open_input(path)? {
                Input::File(mut file) => {
                    anyhow::ensure!(file.metadata()?.len() > 0, "the file is empty");
                    file.by_ref().take(MAGIC_BYTES).read_to_end(&mut start)?;
                    match RecordingFormat::detect(&start)? {
                        RecordingFormat::Perf => Recording::Perf(DataFile::from_file(&file)?),
                        RecordingFormat::Unspool => {
                            file.rewind()?;
                            Recording::Unspool(Profile::read(BufReader::new(file))?)
                        }
                    }
                }
                Input::Stream(mut stream) => {
                    stream.by_ref().take(MAGIC_BYTES).read_to_end(&mut start)?;
                    let kind = RecordingFormat::detect(&start)?;
                    stream.read_to_end(&mut start)?;
                    match kind {
                        RecordingFormat::Perf => Recording::Perf(DataFile::from_bytes(start)?),
                        RecordingFormat::Unspool => {
                            Recording::Unspool(Profile::read(start.as_slice())?)
                        }
                    }
                }
            })
        };
        let recording: anyhow::Result<Recording> = open();
        let recording = recording.map_err(|error| {
            let mut causes = error.chain();
            let is_denied = causes.any(|cause| {
                let cause = cause.downcast_ref::<io::Error>();
                cause.is_some_and(|cause| cause.kind() == io::ErrorKind::PermissionDenied)
            });
            let remedy = if is_denied {
                ": a profile is its owner's: read it as that user, or `sudo chown` it"
            } else {
                ""
            };
            error.context(format!("cannot read {}{remedy}", path.display()))
        })?;
        if let Recording::Unspool(profile) = &recording {
            say_ending(path, profile);
        }
        Ok(recording)
    }

    /// The same as a profile, and whether it is complete: for a recording by perf, the samples of
    /// the given event, or of the first.
    pub(super) fn profile(path: &Path, event: Option<&str>) -> anyhow::Result<(Profile, bool)> {
        match Recording::open(path)? {
            Recording::Perf(file) => import(path, &file, event),
            Recording::Unspool(profile) => {
                anyhow::ensure!(
                    event.is_none(),
                    "{}: a profile has one event: --event is for recordings of perf",
                    path.display()
                );
                let is_whole = !profile.ending().is_cut();
                Ok((profile, is_whole))
            }
        }
    }
}

/// The number of bytes that identify a format.
const MAGIC_BYTES: u64 = 8;

/// The format of a recording.
enum RecordingFormat {
    Perf,
    Unspool,
}

impl RecordingFormat {
    fn detect(bytes: &[u8]) -> anyhow::Result<RecordingFormat> {
        const PERF: &[u8] = b"PERFILE2";
        // The reader refuses the other byte order, and says why.
        const BIG_ENDIAN: &[u8] = b"2ELIFREP";
        let start = bytes.get(..8).unwrap_or(bytes);
        match start {
            PERF | BIG_ENDIAN => Ok(RecordingFormat::Perf),
            start if start == unspool_profile::MAGIC => Ok(RecordingFormat::Unspool),
            start => {
                let remedy = if is_text(start) {
                    ": if `perf script` printed this text, name the recording itself (perf.data)"
                } else {
                    ""
                };
                anyhow::bail!(
                    "neither a profile of unspool nor a recording of perf (PERFILE2): it starts with \"{}\"{remedy}",
                    start.escape_ascii()
                )
            }
        }
    }
}

/// Whether a file that begins so is text.
fn is_text(start: &[u8]) -> bool {
    let is_printable = |byte: &u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
    !start.is_empty() && start.iter().all(is_printable)
}

fn say_ending(path: &Path, profile: &Profile) {
    let ending = match profile.ending() {
        FileEnding::Proper { .. } => return,
        FileEnding::Open => "the recording has not ended, or did not end properly".to_owned(),
        FileEnding::Cut { offset, reason } => {
            format!(
                "the profile is whole up to offset {offset:#x} only; in the block there, {reason}"
            )
        }
    };
    output::notice(&format_args!("{}: {ending}", path.display()));
}

fn import(path: &Path, file: &DataFile, event: Option<&str>) -> anyhow::Result<(Profile, bool)> {
    let event = event.map_or(Ok(0), |event| find(path, file, event))?;
    let (finder, store) = (ModuleFinder::from_environment(), store(false, None)?);
    let mut profile = Vec::new();
    let imported = unspool_sampler::import(file, event, &mut profile, finder, store);
    let imported = imported.with_context(|| path.display().to_string())?;
    report_problems(path, file, &imported.summary);
    if imported.other_events > 0 {
        let name = |event: usize| file.events().get(event).map_or("", |event| &event.name);
        let others = (0..file.events().len()).filter(|other| *other != event);
        output::notice(&format_args!(
            "{}: these are samples of {}; left out are {} of {} (--event)",
            path.display(),
            name(event),
            imported.other_events,
            others.map(name).collect::<Vec<_>>().join(", ")
        ));
    }
    let profile = Profile::read(profile.as_slice())?;
    Ok((profile, is_complete(file, &imported.summary)))
}

/// The index of an event, by its name with modifiers (`cycles:u`) or without.
fn find(path: &Path, file: &DataFile, wanted: &str) -> anyhow::Result<usize> {
    let names = || file.events().iter().map(|event| event.name.as_str());
    let is_modified = |name: &str| {
        let modifiers = name.strip_prefix(wanted);
        modifiers.is_some_and(|modifiers| modifiers.starts_with(':'))
    };
    let found = names().position(|name| name == wanted);
    let found = found.or_else(|| names().position(is_modified));
    found.with_context(|| {
        let path = path.display();
        let names = names().collect::<Vec<_>>().join(", ");
        format!("{path}: no event is named {wanted}: there are {names}")
    })
}

/// Whether a recording by perf was read completely.
pub(super) fn is_complete(file: &DataFile, summary: &ReadSummary) -> bool {
    summary.cut.is_none() && summary.bad == 0 && file.damaged().is_empty() && file.check().is_ok()
}

/// The exit status of a command after its work on recordings, complete or not.
pub(super) fn status(is_whole: bool) -> ExitCode {
    if is_whole {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(output::ExitCodes::FINDINGS)
    }
}

/// Reports the parts of a recording by perf that could not be read.
pub(super) fn report_problems(path: &Path, file: &DataFile, summary: &ReadSummary) {
    let path = path.display();
    for damage in file.damaged().iter().take(MAX_PROBLEMS_PRINTED) {
        output::notice(&format_args!("{path}: {damage}"));
    }
    if let Some(first) = &summary.first_bad {
        let bad = summary.bad;
        output::notice(&format_args!(
            "{path}: {bad} damaged records are left out, the first {first}"
        ));
    }
    if let Err(lost) = file.check() {
        output::notice(&format_args!("{path}: {lost}"));
    }
    if let Some(cut) = &summary.cut {
        output::notice(&format_args!("{path}: read up to there only: {cut}"));
    }
}
