//! Code and its unwind tables in one address space, as the cursor sees them.

use unspool_cfi::Lookup;
use unspool_compact::Compiled;
use unspool_ir::{LoadBias, Row, RuntimeAddr, Vaddr};

use crate::evidence::NoRow;

/// The modules of an address space.
///
/// Implementations for the own process must be wait-free and async-signal-safe.
pub trait Modules {
    /// The module that is mapped at an address.
    fn module(&self, addr: RuntimeAddr) -> Option<Module<'_>>;

    /// Whether there is executable code at an address, in a module or not. Guesses are checked
    /// with it.
    fn is_code(&self, addr: RuntimeAddr) -> bool;
}

/// A module by its place in the address space and the time it came there: what caches are keyed
/// by, since another module may be mapped at the same address later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ModuleId {
    /// The number of the module.
    pub index: u32,
    /// How often that number has been given to another module.
    pub generation: u32,
}

/// A mapped module and what is known about its frames.
#[derive(Debug, Clone, Copy)]
pub struct Module<'m> {
    /// Its identity.
    pub id: ModuleId,
    /// Run-time minus link-time address.
    pub bias: LoadBias,
    /// Where the program, or its loader, begins: code that nothing calls.
    pub entry: Option<Vaddr>,
    /// Its compiled table: asked first.
    pub compiled: Option<Compiled<'m>>,
    /// Its unwind table as the file has it: asked where there is no compiled table.
    pub cfi: Option<Lookup<'m>>,
}

/// The row of an address, and where its entry begins.
#[derive(Debug, Clone, Copy)]
pub struct FoundRow<'m> {
    /// The row.
    pub row: Row<'m>,
    /// The first address of the entry that the row is from.
    pub entry_start: Vaddr,
    /// One past its last address.
    pub entry_end: Vaddr,
}

impl<'m> Module<'m> {
    /// The row that holds at an address of the module.
    ///
    /// # Errors
    ///
    /// [`NoRow`] says why there is none.
    pub fn row(&self, pc: Vaddr) -> Result<FoundRow<'m>, NoRow> {
        match (&self.compiled, &self.cfi) {
            (Some(compiled), _) => compiled_row(compiled, pc),
            (None, Some(cfi)) => {
                let found = cfi.row(pc).map_err(NoRow::BadEntry)?.ok_or(NoRow::Hole)?;
                Ok(FoundRow {
                    row: found.row,
                    entry_start: found.start,
                    entry_end: found.end,
                })
            }
            (None, None) => Err(NoRow::NoTable),
        }
    }
}

fn compiled_row<'m>(compiled: &Compiled<'m>, pc: Vaddr) -> Result<FoundRow<'m>, NoRow> {
    let corrupt = |_| NoRow::CorruptTable;
    let hit = compiled.lookup(pc).map_err(corrupt)?.ok_or(NoRow::Hole)?;
    let row = compiled.row(hit.row).map_err(corrupt)?;
    let entry = compiled
        .entry(pc)
        .map_err(corrupt)?
        .ok_or(NoRow::CorruptTable)?;
    Ok(FoundRow {
        row,
        entry_start: entry.start,
        entry_end: entry.end,
    })
}
