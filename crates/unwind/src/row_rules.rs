//! The rows of a compiled table, packed in advance.

use unspool_compiled_table::{CompiledTable, RowRef};
use unspool_rows::{Abi, PackedRow, RegisterScope};

/// The registers that a walk follows.
pub(crate) const SCOPE: RegisterScope = RegisterScope::StackAndFramePointer;

/// The rules of a compiled table's rows, made in advance: a walk that learns a rule need not read
/// the row.
#[derive(Debug, Clone, Copy, Default)]
pub struct RowRules<'r>(&'r [u64]);

impl<'r> RowRules<'r> {
    /// Makes the rules of the first `into.len()` rows of a table. [`CompiledTable::distinct_rows`]
    /// is the number of all.
    #[must_use]
    pub fn make(compiled: &CompiledTable<'_>, into: &'r mut [u64]) -> Self {
        for (slot, number) in into.iter_mut().zip(0..=u16::MAX) {
            let packed = packed(compiled, RowRef(number));
            *slot = packed.map_or(0, PackedRow::word);
        }
        RowRules(into)
    }

    /// Rules from [`RowRules::make`], in the same memory.
    #[must_use]
    pub fn from_slice(rules: &'r [u64]) -> Self {
        RowRules(rules)
    }

    /// The rule of a row of the table. `None` if the row does not pack.
    pub(crate) fn get(self, compiled: &CompiledTable<'_>, row: RowRef) -> Option<PackedRow> {
        match self.0.get(usize::from(row.0)) {
            Some(0) => None,
            Some(word) => Some(PackedRow::from_word(*word)),
            None => packed(compiled, row),
        }
    }
}

fn packed(compiled: &CompiledTable<'_>, row: RowRef) -> Option<PackedRow> {
    let Abi { arch, .. } = compiled.abi();
    PackedRow::from_encoded(compiled.encoded_row(row).ok()?, arch, SCOPE)
}
