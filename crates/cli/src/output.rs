//! Results on standard output, everything else on standard error.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::Display;
use std::io::{self, BufWriter, StdoutLock, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use serde::{Serialize, Serializer};
use serde_json::ser::Formatter;
use unspool_files::{EscapedLines, PlainJson};
pub(crate) use unspool_files::{EscapedText, with_causes};

use crate::text::fit::fit;

/// Exit statuses beside 0.
pub(crate) struct ExitCodes;

impl ExitCodes {
    /// Findings, bad entries in a readable file, or a failed request.
    pub(crate) const FINDINGS: u8 = 1;
    /// Usage, or input that cannot be read.
    pub(crate) const COULD_NOT_RUN: u8 = 2;
}

/// The reader of the output stopped reading: `unspool … | head -1` is not an error.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("standard output was closed")]
pub(crate) struct OutputClosed;

/// Whether an error means that the reader of the output is gone.
pub(crate) fn is_closed(error: &anyhow::Error) -> bool {
    let inner = |cause: &'_ (dyn Error + 'static)| {
        let inner = cause.downcast_ref::<io::Error>()?.get_ref()?;
        inner.downcast_ref::<OutputClosed>().copied()
    };
    error.chain().any(|cause| inner(cause).is_some())
}

/// Standard output, which reports when it was closed; other broken pipes are errors.
pub(crate) struct Results(StdoutLock<'static>);

impl Write for Results {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(|error| closed_error(&error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(|error| closed_error(&error))
    }
}

fn closed_error(error: &io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe => io::Error::new(io::ErrorKind::BrokenPipe, OutputClosed),
        kind => io::Error::new(kind, format!("cannot write to standard output: {error}")),
    }
}

impl Results {
    pub(crate) fn new() -> Results {
        Results(io::stdout().lock())
    }
}

/// Buffered standard output. Must be flushed: dropping it loses errors.
pub(crate) fn results() -> BufWriter<Results> {
    BufWriter::with_capacity(1 << 16, Results::new())
}

/// The same for text with names from files.
pub(crate) fn text() -> EscapedLines<BufWriter<Results>> {
    EscapedLines(results())
}

/// A path as part of a text.
pub(crate) fn path(path: &Path) -> String {
    EscapedText(&path.to_string_lossy()).to_string()
}

/// Writes all of a text to standard output.
pub(crate) fn print(text: &[u8]) -> io::Result<()> {
    let mut out = results();
    out.write_all(text)?;
    out.flush()
}

/// Prints the help or the version, as the command line parser formats it.
pub(crate) fn help(help: &clap::Error) -> io::Result<()> {
    let printed = help.print().and_then(|()| io::stdout().flush());
    printed.map_err(|error| closed_error(&error))
}

/// Reports an error. A closed standard error is ignored.
pub(crate) fn error(message: &dyn Display) {
    let message = message.to_string();
    let _ = writeln!(
        anstream::stderr(),
        "unspool: error: {}",
        EscapedText(&message)
    );
}

/// Prints a notice, once; the work continues.
pub(crate) fn notice(message: &dyn Display) {
    static PRINTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let message = message.to_string();
    let mut said = PRINTED.lock().unwrap_or_else(PoisonError::into_inner);
    if !said.contains(&message) {
        let _ = writeln!(anstream::stderr(), "unspool: {}", EscapedText(&message));
        said.insert(message);
    }
}

/// Writes a line of limited width: a longer line is cut in the middle.
pub(crate) fn line(
    out: &mut dyn Write,
    columns: usize,
    before: &str,
    name: &str,
) -> io::Result<()> {
    let name = EscapedText(name).to_string();
    let room = columns.saturating_sub(before.chars().count());
    writeln!(out, "{before}{}", fit(&name, room))
}

/// The layout of a JSON document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JsonLayout {
    /// Pretty-printed.
    Pretty,
    /// Pretty-printed, with each element of a list on one line.
    Rows,
    /// On one line.
    Line,
}

/// The version of all schemas (docs/json.md).
const SCHEMA_VERSION: u32 = 2;

/// A JSON document with its schema's name.
#[derive(Serialize)]
struct SchemaDocument<'a, T> {
    schema: String,
    version: u32,
    #[serde(flatten)]
    body: &'a T,
}

/// Writes an object as a JSON document of a schema to standard output.
pub(crate) fn document(schema: &str, body: &impl Serialize) -> io::Result<()> {
    write_document(&mut results(), JsonLayout::Pretty, schema, body)
}

/// Writes an object as a JSON document of a schema.
pub(crate) fn write_document(
    out: &mut dyn Write,
    layout: JsonLayout,
    schema: &str,
    body: &impl Serialize,
) -> io::Result<()> {
    let document = SchemaDocument {
        schema: format!("unspool.{schema}"),
        version: SCHEMA_VERSION,
        body,
    };
    let mut json = PlainJson(&mut *out);
    match layout {
        JsonLayout::Pretty => serde_json::to_writer_pretty(&mut json, &document)?,
        JsonLayout::Rows => {
            let rows = RowFormatter::default();
            document.serialize(&mut serde_json::Serializer::with_formatter(&mut json, rows))?;
        }
        JsonLayout::Line => serde_json::to_writer(&mut json, &document)?,
    }
    writeln!(out)?;
    out.flush()
}

/// Gives the fields of a document and their elements separate lines, but nothing within those.
#[derive(Default)]
struct RowFormatter {
    depth: usize,
    has_value: bool,
}

impl RowFormatter {
    const MAX_ROW_DEPTH: usize = 2;

    fn begin<W: ?Sized + Write>(&mut self, out: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth += 1;
        self.has_value = false;
        out.write_all(bracket)
    }

    /// Starts an element or a field.
    fn next<W: ?Sized + Write>(&mut self, out: &mut W, is_first: bool) -> io::Result<()> {
        if !is_first {
            let has_line = self.depth <= RowFormatter::MAX_ROW_DEPTH;
            out.write_all(if has_line { b"," } else { b", " })?;
        }
        self.has_value = true;
        self.line(out)
    }

    /// Starts a line, unless the layout is a single line.
    fn line<W: ?Sized + Write>(&self, out: &mut W) -> io::Result<()> {
        if self.depth <= RowFormatter::MAX_ROW_DEPTH {
            write!(out, "\n{:1$}", "", 2 * self.depth)
        } else {
            Ok(())
        }
    }

    fn end<W: ?Sized + Write>(&mut self, out: &mut W, bracket: &[u8]) -> io::Result<()> {
        let has_lines = self.has_value && self.depth <= RowFormatter::MAX_ROW_DEPTH;
        self.depth -= 1;
        // This value is an element of the enclosing one.
        self.has_value = true;
        if has_lines {
            self.line(out)?;
        }
        out.write_all(bracket)
    }
}

impl Formatter for RowFormatter {
    fn begin_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.begin(out, b"[")
    }

    fn end_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.end(out, b"]")
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.next(out, first)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.begin(out, b"{")
    }

    fn end_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.end(out, b"}")
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.next(out, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(b": ")
    }
}

/// A list that is produced while it is written, and so needs no memory.
pub(crate) struct Streamed<F>(pub(crate) F);

impl<F, I> Serialize for Streamed<F>
where
    F: Fn() -> I,
    I: Iterator<Item: Serialize>,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq((self.0)())
    }
}

/// An address as JSON: a string, since numbers above 2^53 are not safe in every reader.
pub(crate) fn address(addr: u64) -> String {
    format!("{addr:#x}")
}

/// The last component of a module's path.
pub(crate) fn short_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned()
}
