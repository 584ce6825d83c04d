//! Rows made from code that a file's unwind table does not cover.

use core::ops::Range;

use unspool_compiled_table::{EncodedTable, encode_synthesized};
use unspool_elf::{ElfFile, Symbols};
use unspool_rows::Table;
use unspool_synthesis::{Synthesis, SynthesisError, VERSION, synthesize as synthesize_gaps};

use crate::compile::{CompileError, as_key, own_key};
use crate::source::read_if_any;
use crate::store::{Store, TableBytes};

/// Makes rows for the code of a file that `own`, its unwind table, does not cover. `symbols` give
/// the functions: the file's own, or also those of its separate debug file.
///
/// # Errors
///
/// The architecture is unsupported, or there is too much code.
pub fn synthesize(
    file: &ElfFile,
    symbols: &Symbols,
    own: &Table,
) -> Result<Synthesis, SynthesisError> {
    synthesize_gaps(file, symbols, &covered(own))
}

/// Compiles rows that were made from a file's code.
///
/// # Errors
///
/// They cannot be written.
pub fn compile_synthesized(file: &ElfFile, table: &Table) -> Result<EncodedTable, CompileError> {
    let key = own_key(file);
    encode_synthesized(table, as_key(&key), VERSION).map_err(|error| CompileError::Encode {
        file: file.path().to_string_lossy().into_owned(),
        error,
    })
}

/// The rows made from a file's code, compiled: from a store, or else made and kept there.
#[must_use]
pub fn find_or_synthesize(file: &ElfFile, store: &Store) -> Option<TableBytes> {
    if let Some(found) = store.find_synthesized(file) {
        return Some(found);
    }
    let file = &*store.stable(file);
    let own = read_if_any(file).unwrap_or_else(|_| Table::new(file.abi()));
    let synthesis = synthesize(file, file.symbols(), &own).ok()?;
    let encoded = compile_synthesized(file, &synthesis.table).ok()?;
    file.check_unchanged().ok()?;
    // If they cannot be kept, the only cost is making them again.
    let _ = store.keep_synthesized(file, &encoded.bytes);
    Some(TableBytes::Memory(encoded.bytes))
}

/// The addresses covered by a table's entries, ascending.
fn covered(table: &Table) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for extent in table.extents() {
        let (start, end) = (extent.start.0, extent.end.0);
        match ranges.last_mut() {
            Some(last) if start <= last.end => last.end = last.end.max(end),
            _ => ranges.push(start..end),
        }
    }
    ranges
}
