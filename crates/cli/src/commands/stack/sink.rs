//! Where reports go.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::commands;
use crate::output;

/// Takes reports one after the other.
pub(super) enum Sink<'a> {
    Stream(BufWriter<Box<dyn Write>>),
    /// The file holds whole reports at any time, and is made by the first.
    File {
        path: &'a Path,
        reports: Vec<u8>,
    },
}

impl<'a> Sink<'a> {
    /// What `--output` says; `-` is standard output.
    pub(super) fn named(path: &'a Path) -> Sink<'a> {
        if path.as_os_str() == "-" {
            return Sink::standard_output();
        }
        Sink::File {
            path,
            reports: Vec::new(),
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

    /// Takes the report that `print` writes.
    pub(super) fn take(
        &mut self,
        print: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        match self {
            Sink::Stream(stream) => {
                print(stream)?;
                stream.flush()?;
            }
            Sink::File { path, reports } => {
                print(reports)?;
                commands::write(path, reports, None)?;
            }
        }
        Ok(())
    }
}
