//! Results on standard output, all else on standard error.

use std::error::Error;
use std::fmt::Display;
use std::io::{self, BufWriter, StdoutLock, Write};

use serde_json::{Value, json};

/// Exit statuses beside 0.
pub(crate) struct Failure;

impl Failure {
    /// Findings, bad entries in a readable file, or the work asked for failed.
    pub(crate) const FINDINGS: u8 = 1;
    /// Usage, or input that cannot be read.
    pub(crate) const COULD_NOT_RUN: u8 = 2;
}

/// Buffered standard output.
pub(crate) fn results() -> BufWriter<StdoutLock<'static>> {
    BufWriter::with_capacity(1 << 16, io::stdout().lock())
}

/// Reports an error. A closed standard error is nobody's problem.
pub(crate) fn error(message: &dyn Display) {
    let _ = writeln!(anstream::stderr(), "unspool: error: {message}");
}

/// Reports something worth knowing; the work goes on.
pub(crate) fn notice(message: &dyn Display) {
    let _ = writeln!(anstream::stderr(), "unspool: {message}");
}

/// An error and what caused it.
pub(crate) fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

/// Writes a JSON document with its schema's name.
pub(crate) fn document(schema: &str, mut body: Value) -> io::Result<()> {
    if let Some(object) = body.as_object_mut() {
        object.insert("schema".into(), json!(format!("unspool.{schema}")));
        object.insert("version".into(), json!(1));
    }
    let mut out = results();
    serde_json::to_writer_pretty(&mut out, &body)?;
    writeln!(out)?;
    out.flush()
}

/// An address as JSON: a string, since numbers above 2^53 are not safe in every reader.
pub(crate) fn address(addr: u64) -> Value {
    json!(format!("{addr:#x}"))
}
