//! Which rows are held against what happens.

use unspool_ir::Table;
use unspool_module::ElfFile;
use unspool_tables::{self as tables, From};

/// Where rows are from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowsFrom {
    /// The unwind table of the file.
    Table(From),
    /// The code alone, as [`unspool_recover::synthesize`] makes rows of it. Code without a row is no finding then.
    Code,
}

impl RowsFrom {
    /// The rows of a file; none if they cannot be had.
    #[must_use]
    pub fn read(self, file: &ElfFile) -> Table {
        let table = match self {
            RowsFrom::Table(from) => tables::read(file, from).ok().map(|reading| reading.table),
            RowsFrom::Code => {
                let synthesis = unspool_recover::synthesize(file, file.symbols(), &[]);
                synthesis.ok().map(|synthesis| synthesis.table)
            }
        };
        table.unwrap_or_else(|| Table::new(file.abi()))
    }
}
