//! Which rows are held against what happens.

use unspool_elf::ElfFile;
use unspool_rows::Table;
use unspool_table_store::{self as tables, TableSource};

/// Where rows are from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowSource {
    /// The unwind table of the file.
    Table(TableSource),
    /// The code alone, as [`unspool_synthesis::synthesize`] makes rows of it. Code without a row is no finding then.
    Code,
}

impl RowSource {
    /// The rows of a file; none if they cannot be had.
    #[must_use]
    pub fn read(self, file: &ElfFile) -> Table {
        let table = match self {
            RowSource::Table(from) => tables::read(file, from).ok().map(|reading| reading.table),
            RowSource::Code => {
                let synthesis = unspool_synthesis::synthesize(file, file.symbols(), &[]);
                synthesis.ok().map(|synthesis| synthesis.table)
            }
        };
        table.unwrap_or_else(|| Table::new(file.abi()))
    }
}
