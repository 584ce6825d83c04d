//! Sources of the rows that are compared with the run.

use unspool_elf::ElfFile;
use unspool_rows::Table;
use unspool_table_store::{self as tables, TableSource};

/// The source of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowSource {
    /// The unwind table of the file.
    Table(TableSource),
    /// The code alone, through [`unspool_synthesis::synthesize`]. Code without a row is then not a
    /// finding.
    Code,
}

impl RowSource {
    /// The rows of a file; an empty table if there are none.
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
