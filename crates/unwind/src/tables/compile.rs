//! Compiling a file's table, and proving the result.

use unspool_compact::{Code, Comparison, Compiled, EncodeError, Encoded, Key, compare, encode};
use unspool_ir::Table;
use unspool_module::{ContentKey, ElfFile};

/// The executable code of a file, as the call-site part needs it: empty for a relocatable file,
/// whose code is not final.
#[must_use]
pub fn code(file: &ElfFile) -> Code<'_> {
    let ranges = file.executable_ranges().into_iter().filter_map(|range| {
        let bytes = file.bytes_at(range.start, range.end.0 - range.start.0)?;
        Some((range.start, bytes))
    });
    Code {
        ranges: ranges.collect(),
    }
}

/// Compiles the table of a file, keyed by its build ID, or by a hash of its contents.
///
/// # Errors
///
/// The rows cannot be written as a table.
pub fn compile(file: &ElfFile, table: &Table) -> Result<Encoded, EncodeError> {
    let key = file.content_key();
    encode(table, as_key(&key), &code(file))
}

/// Compares a compiled table with its source, over every address.
#[must_use]
pub fn verify(file: &ElfFile, table: &Table, compiled: &Compiled<'_>) -> Comparison {
    compare(table, compiled, &code(file))
}

/// A file's key in the form that the format has.
pub(crate) fn as_key(key: &ContentKey) -> Key<'_> {
    match key {
        ContentKey::BuildId(id) => Key::BuildId(id.as_bytes()),
        ContentKey::Hash(hash) => Key::Content(hash),
    }
}
