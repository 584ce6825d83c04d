//! The destination of reports.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use anyhow::Context as _;

use crate::commands;
use crate::output;

/// Receives reports in order.
pub(super) enum Sink<'a> {
    Stream(BufWriter<Box<dyn Write>>),
    /// The first report replaces the file, the others are appended.
    File {
        path: &'a Path,
        is_begun: bool,
    },
}

impl<'a> Sink<'a> {
    /// The destination given by `--output`; `-` is standard output.
    pub(super) fn named(path: &'a Path) -> Sink<'a> {
        if path.as_os_str() == "-" {
            return Sink::standard_output();
        }
        Sink::File {
            path,
            is_begun: false,
        }
    }

    pub(super) fn standard_output() -> Sink<'a> {
        Sink::stream(output::Results::new())
    }

    pub(super) fn standard_error() -> Sink<'a> {
        Sink::stream(io::stderr())
    }

    fn stream(stream: impl Write + 'static) -> Sink<'a> {
        Sink::Stream(BufWriter::new(Box::new(stream)))
    }

    /// Whether reports can be written, checked before there are any.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        match self {
            Sink::Stream(_) => Ok(()),
            Sink::File { path, .. } => commands::check_writable(path),
        }
    }

    /// Receives the report that `print` writes.
    pub(super) fn take(
        &mut self,
        print: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        match self {
            Sink::Stream(stream) => {
                print(stream)?;
                stream.flush()?;
            }
            Sink::File { path, is_begun } => {
                let mut report = Vec::new();
                print(&mut report)?;
                let written = match is_begun {
                    false => commands::write(path, &report, None),
                    true => append(path, &report),
                };
                if written.is_err() {
                    // There may be no other chance to see it.
                    let _ = io::stderr().write_all(&report);
                }
                written?;
                *is_begun = true;
            }
        }
        Ok(())
    }
}

fn append(path: &Path, report: &[u8]) -> anyhow::Result<()> {
    unspool_files::output::append(path)
        .and_then(|mut file| file.write_all(report))
        .with_context(|| format!("cannot write {}", path.display()))
}
