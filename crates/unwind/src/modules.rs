//! Code and its unwind tables in one address space, as the cursor sees them.

use core::cell::Cell;
use core::fmt;
use core::ops::Range;

use unspool_cfi::lookup::RowInfo;
use unspool_cfi::{CfiError, FastRow, Lookup, sframe};
use unspool_compiled_table::{CompiledTable, RowRef, TableCorruption, call_test};
use unspool_rows::{CodeAddr, LoadBias, Register, Registers, Row, RuntimeAddr, Vaddr};

use crate::arch;
use crate::evidence::{Evidence, NoRow};
use crate::rule::RowRules;

/// The modules of an address space.
///
/// Implementations for the own process must be wait-free and async-signal-safe.
pub trait Modules {
    /// The module that is mapped at an address.
    fn module(&self, addr: RuntimeAddr) -> Option<Module<'_>>;

    /// What [`Modules::module`] says of an address, if that is in the module at a place: one that it has found
    /// there, and that nobody may unload meanwhile, so that nobody is asked whether it still is there. `None`
    /// where it is another, or to leave that to [`Modules::module`]. No module is at place 0.
    fn module_at(&self, _place: ModuleSlot, _addr: RuntimeAddr) -> Option<Module<'_>> {
        None
    }

    /// Why there is no module at an address.
    fn without_module(&self, _addr: RuntimeAddr) -> NoRow {
        NoRow::NoModule
    }

    /// The places below 64, as bits, of modules that stay there as long as the address space does:
    /// nobody need ask whether they are there.
    fn staying(&self) -> u64 {
        0
    }

    /// Whether a module is still at its place: asked of those that have a return address of the
    /// stack, which nobody may unload meanwhile.
    fn is_there(&self, _place: ModuleSlot) -> bool {
        false
    }

    /// Whether an address was in the module at a place when that was found. Says nothing of now, and
    /// reads nothing of the module.
    fn was_in(&self, _place: ModuleSlot, _addr: RuntimeAddr) -> bool {
        true
    }

    /// Whether there is executable code at an address, in a module or not. Guesses are checked
    /// with it.
    fn is_code(&self, addr: RuntimeAddr) -> bool;
}

/// The number of a module at an address, above 0: what caches are keyed by. It is never given to
/// another module, nor to the same at another address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ModuleSlot(pub u16);

/// A mapped module and what is known about its frames.
#[derive(Debug, Clone, Copy)]
pub struct Module<'m> {
    /// Its place, if what is learned of it may be kept.
    pub slot: Option<ModuleSlot>,
    /// Run-time minus link-time address.
    pub bias: LoadBias,
    /// Where the program, or its loader, begins: code that nothing calls.
    pub entry: Option<Vaddr>,
    /// Its compiled table: asked first.
    pub compiled: Option<&'m CompiledTable<'m>>,
    /// What rows of the compiled table come to in a walk, as far as that is known beforehand.
    pub rules: RowRules<'m>,
    /// Its executable code as it was linked, if that is at hand: the first address, and the bytes.
    /// With it the compiled table's call-site part can be asked.
    pub code: Option<(Vaddr, &'m [u8])>,
    /// Its unwind table as the file has it: asked where there is no compiled table.
    pub cfi: Option<&'m Lookup<'m>>,
    /// Its SFrame as the file has it: asked where the table has nothing.
    pub sframe: Option<&'m sframe::SframeLookup<'m>>,
    /// Which entries of `cfi` were found before.
    pub entry_cache: Option<&'m EntryCache>,
    /// Rows made of the code: asked where no table speaks.
    pub synthesized: Option<&'m dyn SynthesizedRows>,
    /// Its unwind table as machine code: a cursor steps by it before it asks for a row.
    pub native: Option<&'m dyn NativeUnwinder>,
}

/// A module's unwind table as machine code.
pub trait NativeUnwinder: fmt::Debug {
    /// Steps from a frame that stands at an address of the module: as its row says, if more than that need not be
    /// known. `None` leaves the frame to the row, and so the reason why there is no caller, if there is none.
    fn step(
        &self,
        code: CodeAddr,
        bias: LoadBias,
        registers: &Registers,
        read: ReadNumber<'_>,
    ) -> Option<NativeStep>;
}

/// Reads a number of 1 to 8 bytes, as many as the second argument says, of the thread's memory.
pub type ReadNumber<'m> = &'m dyn Fn(RuntimeAddr, u8) -> Option<u64>;

/// What a step by machine code led to.
#[derive(Debug, Clone, Copy)]
pub struct NativeStep {
    /// Where it led.
    pub to: NativeTarget,
    /// The canonical frame address of the frame that was left.
    pub cfa: RuntimeAddr,
    /// The values there of the first registers, the code address among them.
    pub values: [u64; NativeStep::REGISTERS],
    /// Which of them are known, register 0 in the lowest bit. No others are.
    pub known: u64,
}

impl NativeStep {
    /// The registers of a frame, by their DWARF numbers: those below this one.
    pub const REGISTERS: usize = 17;

    /// The value of a register.
    pub(crate) fn get(&self, register: Register) -> Option<u64> {
        let value = self.values.get(usize::from(register.0))?;
        (self.known >> register.0 & 1 != 0).then_some(*value)
    }
}

/// Where a step by machine code led.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NativeTarget {
    /// To a caller, which has made a call.
    Caller,
    /// From a signal frame to the frame that was interrupted.
    Interrupted,
    /// Nowhere: the frame is the outermost.
    Outermost,
}

/// Rows made of a module's code, for where its unwind tables have none.
pub trait SynthesizedRows: fmt::Debug {
    /// They, as a compiled table; `None` if there are none. It may take long to make them.
    fn rows(&self) -> Option<&CompiledTable<'_>>;
}

/// The entries that were found for some addresses of one module: a walk through a recursion
/// asks for the same few again and again, and without a search table each look-up goes through
/// the whole section. Fixed size; a later address takes the place of an earlier one.
#[derive(Debug)]
pub struct EntryCache {
    slots: [Cell<Option<CachedEntry>>; EntryCache::SLOTS],
}

/// An address and the offset of the entry that covers it, if there is one.
#[derive(Debug, Clone, Copy)]
struct CachedEntry {
    pc: Vaddr,
    origin: Option<u64>,
}

impl EntryCache {
    const BITS: u32 = 6;
    const SLOTS: usize = 1 << EntryCache::BITS;

    /// Nothing is known.
    #[must_use]
    pub const fn new() -> Self {
        EntryCache {
            slots: [const { Cell::new(None) }; EntryCache::SLOTS],
        }
    }

    fn slot(&self, pc: Vaddr) -> Option<&Cell<Option<CachedEntry>>> {
        // Fibonacci hashing: neighbouring addresses go to different slots.
        let hash = pc.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - EntryCache::BITS);
        self.slots.get(usize::try_from(hash).ok()?)
    }

    /// What `cfi.row(pc, row)` yields.
    fn row<'m>(
        &self,
        cfi: &Lookup<'m>,
        pc: Vaddr,
        row: &mut Row<'m>,
    ) -> Result<Option<RowInfo>, CfiError> {
        let Some(slot) = self.slot(pc) else {
            return cfi.row(pc, row);
        };
        if let Some(known) = slot.get().filter(|known| known.pc == pc) {
            return match known.origin {
                Some(origin) => cfi.row_in(origin, pc, row),
                None => Ok(None),
            };
        }
        let found = cfi.row(pc, row)?;
        slot.set(Some(CachedEntry {
            pc,
            origin: found.as_ref().map(|found| found.origin),
        }));
        Ok(found)
    }
}

impl Default for EntryCache {
    fn default() -> Self {
        EntryCache::new()
    }
}

/// The row of an address, and where its entry begins.
#[derive(Debug, Clone, Copy)]
pub struct ModuleRow<'e, 'm> {
    /// The row.
    pub row: &'e Row<'m>,
    /// The first address of the entry that the row is from.
    pub entry_start: Vaddr,
    /// One past its last address.
    pub entry_end: Vaddr,
    /// Whether it is the row of a table, or was made of the code.
    pub evidence: Evidence,
}

impl<'m> Module<'m> {
    /// Makes `row` the one that holds at an address of the module.
    ///
    /// # Errors
    ///
    /// [`NoRow`] says why there is none.
    pub fn row<'e>(&self, pc: Vaddr, row: &'e mut Row<'m>) -> Result<ModuleRow<'e, 'm>, NoRow> {
        let entry = match self.entry_by_table(pc, row) {
            Err(missing @ (NoRow::Hole | NoRow::NoTable)) => {
                let rows = self
                    .synthesized
                    .and_then(SynthesizedRows::rows)
                    .ok_or(missing)?;
                let entry = compiled_row(rows, pc, row).map_err(|_| missing)?;
                (entry, Evidence::Synthesized)
            }
            entry => (entry?, Evidence::Cfi),
        };
        let (Range { start, end }, evidence) = entry;
        Ok(ModuleRow {
            row,
            entry_start: start,
            entry_end: end,
            evidence,
        })
    }

    /// Makes `row` the one that the unwind tables have for an address; yields the addresses of its entry.
    pub(crate) fn entry_by_table(
        &self,
        pc: Vaddr,
        row: &mut Row<'m>,
    ) -> Result<Range<Vaddr>, NoRow> {
        let missing = match self.entry_by_cfi(pc, row) {
            Err(missing @ (NoRow::Hole | NoRow::NoTable)) => missing,
            entry => return entry,
        };
        let sframe = self.sframe.ok_or(missing)?;
        let entry = sframe.row(pc, row).map_err(NoRow::BadSframe)?;
        entry.ok_or(NoRow::Hole)
    }

    fn entry_by_cfi(&self, pc: Vaddr, row: &mut Row<'m>) -> Result<Range<Vaddr>, NoRow> {
        match (self.compiled, self.cfi) {
            (Some(compiled), _) => compiled_row(compiled, pc, row),
            (None, Some(cfi)) => {
                let found = match self.entry_cache {
                    Some(entries) => entries.row(cfi, pc, row),
                    None => cfi.row(pc, row),
                };
                let found = found.map_err(NoRow::BadEntry)?.ok_or(NoRow::Hole)?;
                Ok(found.start..found.end)
            }
            (None, None) => Err(NoRow::NoTable),
        }
    }
}

impl<'m> Module<'m> {
    /// The row that holds at the call before a return address, if the call-site part of the compiled
    /// table says so: what [`Module::row`] says of the byte before, faster. Not for entry code and
    /// signal trampolines, of which more is to be said than the row.
    #[inline(always)]
    pub(crate) fn row_of_call(&self, address: Vaddr) -> Option<(&'m CompiledTable<'m>, RowRef)> {
        let compiled = self.compiled?;
        let (start, code) = self.code?;
        let offset = usize::try_from(address.0.checked_sub(start.0)?).ok()?;
        if self.may_be_entry_code(address)
            || arch::begins_trampoline(compiled.abi().arch, code.get(offset..)?)
        {
            return None;
        }
        let before = call_test::window(code, offset);
        let row = compiled.call_sites().row(address, before).ok()??;
        Some((compiled, row))
    }

    /// The row that holds at an instruction, by the compiled table: what [`Module::row`] says, faster. Not
    /// for entry code, of which more is to be said than the row.
    pub(crate) fn row_of_instruction(&self, pc: Vaddr) -> Option<(&'m CompiledTable<'m>, RowRef)> {
        let compiled = self.compiled?;
        if self.may_be_entry_code(pc) {
            return None;
        }
        Some((compiled, compiled.lookup(pc).ok()??.row))
    }

    /// Whether an address is in entry code or not far behind.
    #[inline(always)]
    fn may_be_entry_code(&self, address: Vaddr) -> bool {
        /// No entry code is longer than this, in bytes.
        const MAX_ENTRY_CODE_BYTES: u64 = 1 << 16;
        let entry = self.entry;
        entry.is_some_and(|entry| address.0.wrapping_sub(entry.0) <= MAX_ENTRY_CODE_BYTES)
    }

    /// What the row that holds at an address says of the stack pointer and the frame pointer
    /// (`watched`), if that is nothing unusual: what [`Module::row`] says, faster. It is for modules
    /// without a compiled table.
    pub(crate) fn fast_row(&self, pc: Vaddr, watched: [Register; 2]) -> Option<FastRow<'m>> {
        match (self.compiled, self.cfi) {
            (None, Some(cfi)) => cfi.fast_row(pc, watched),
            _ => None,
        }
    }
}

fn compiled_row<'m>(
    compiled: &CompiledTable<'m>,
    pc: Vaddr,
    row: &mut Row<'m>,
) -> Result<Range<Vaddr>, NoRow> {
    let hit = compiled.lookup(pc)?.ok_or(NoRow::Hole)?;
    compiled.read_row(hit.row, row)?;
    // Where there is a row there is an entry.
    let entry = compiled.entry(pc)?.ok_or(TableCorruption::Entries)?;
    Ok(entry.start..entry.end)
}
