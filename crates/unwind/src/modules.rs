//! Code and its unwind tables in one address space, for the cursor.

use core::cell::Cell;
use core::fmt;
use core::ops::Range;

use unspool_cfi::lookup::RowInfo;
use unspool_cfi::{CfiError, FastRow, Lookup, sframe};
use unspool_compiled_table::{CompiledTable, RowRef, TableCorruption, call_test};
use unspool_rows::{CodeAddr, LoadBias, Register, Registers, Row, RuntimeAddr, Vaddr};

use crate::evidence::{Evidence, NoRow};
use crate::row_rules::RowRules;

/// The modules of an address space.
///
/// Implementations for the own process must be wait-free and async-signal-safe.
pub trait Modules {
    /// The module mapped at an address.
    fn module(&self, addr: RuntimeAddr) -> Option<Module<'_>>;

    /// The same as [`Modules::module`] for an address in the module of a slot. The caller has found
    /// the module there, and it cannot be unloaded meanwhile, so its presence is not checked.
    /// `None` if the address is in another module, or to leave it to [`Modules::module`]. Slot 0
    /// has no module.
    fn module_at(&self, _place: ModuleSlot, _addr: RuntimeAddr) -> Option<Module<'_>> {
        None
    }

    /// Why there is no module at an address.
    fn without_module(&self, _addr: RuntimeAddr) -> NoRow {
        NoRow::NoModule
    }

    /// The slots below 64, as bits, of modules that stay as long as the address space: their
    /// presence need not be checked.
    fn staying(&self) -> u64 {
        0
    }

    /// Whether a slot's module is still present. Only called for modules that contain a return
    /// address of the stack, which cannot be unloaded meanwhile.
    fn is_mapped(&self, _place: ModuleSlot) -> bool {
        false
    }

    /// Whether an address was in a slot's module when that was discovered. Says nothing about the
    /// present, and reads nothing of the module.
    fn was_in(&self, _place: ModuleSlot, _addr: RuntimeAddr) -> bool {
        true
    }

    /// Whether there is executable code at an address, in a module or not. Guesses are checked by
    /// this.
    fn is_code(&self, addr: RuntimeAddr) -> bool;

    /// Whether it is certain that no executable memory is at an address. It is not where code that
    /// is in no module is unknown.
    fn is_not_code(&self, _addr: RuntimeAddr) -> bool {
        false
    }

    /// The code at an address that is in no module, if it can be read.
    fn anonymous_code(&self, _addr: RuntimeAddr) -> Option<&dyn SynthesizedRows> {
        None
    }
}

/// The number of a module at an address, above 0: the key for caches. It is never reused for
/// another module, nor for the same module at another address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ModuleSlot(pub u16);

/// A mapped module with its unwind tables.
#[derive(Debug, Clone, Copy)]
pub struct Module<'m> {
    /// Its slot, if knowledge about it may be kept.
    pub slot: Option<ModuleSlot>,
    /// Run-time minus link-time address.
    pub bias: LoadBias,
    /// The entry code of the program, or of its loader, which has no caller.
    pub entry: Option<Vaddr>,
    /// Its compiled table: looked up first.
    pub compiled: Option<&'m CompiledTable<'m>>,
    /// The rules of the compiled table's rows, if prepared.
    pub rules: RowRules<'m>,
    /// Its executable code as linked, if available: the first address, and the bytes. It is needed
    /// for the compiled table's call-site part.
    pub code: Option<(Vaddr, &'m [u8])>,
    /// Its own unwind table in the file: looked up if there is no compiled table.
    pub cfi: Option<&'m Lookup<'m>>,
    /// Its own SFrame in the file: looked up where the table has nothing.
    pub sframe: Option<&'m sframe::SframeLookup<'m>>,
    /// A cache of entries found in `cfi`.
    pub entry_cache: Option<&'m EntryCache>,
    /// Rows synthesized from the code: looked up where no table covers the address.
    pub synthesized: Option<&'m dyn SynthesizedRows>,
    /// Its unwind table as machine code: a cursor tries it before it looks up a row.
    pub native: Option<&'m dyn NativeUnwinder>,
}

/// A module's unwind table as machine code.
pub trait NativeUnwinder: fmt::Debug {
    /// Steps from a frame at an address of the module by its row, if the row is enough. `None`
    /// leaves the frame to the row, which also gives the reason if there is no caller.
    fn step(
        &self,
        code: CodeAddr,
        bias: LoadBias,
        registers: &Registers,
        read: ReadNumber<'_>,
    ) -> Option<NativeStep>;
}

/// Reads a number of 1 to 8 bytes, the second argument, from the thread's memory.
pub type ReadNumber<'m> = &'m dyn Fn(RuntimeAddr, u8) -> Option<u64>;

/// The result of a step by machine code.
#[derive(Debug, Clone, Copy)]
pub struct NativeStep {
    /// The kind of frame that it found.
    pub target: NativeTarget,
    /// The canonical frame address of the callee, the frame before the step.
    pub cfa: RuntimeAddr,
    /// The values of the first registers in the new frame, including the code address.
    pub values: [u64; NativeStep::REGISTERS],
    /// A bit for each known register, register 0 in the lowest bit. All others are unknown.
    pub known: u64,
}

impl NativeStep {
    /// The registers of a frame below this DWARF number.
    pub const REGISTERS: usize = 17;

    /// The value of a register.
    pub(crate) fn get(&self, register: Register) -> Option<u64> {
        let value = self.values.get(usize::from(register.0))?;
        (self.known >> register.0 & 1 != 0).then_some(*value)
    }
}

/// The kind of frame that a step by machine code found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NativeTarget {
    /// A caller, which has made a call.
    Caller,
    /// From a signal frame, the interrupted frame.
    Interrupted,
    /// None: the frame is the outermost.
    Outermost,
}

/// Rows synthesized from code, where no unwind table has one.
pub trait SynthesizedRows: fmt::Debug {
    /// The rows of a module as a compiled table; `None` if there are none. Making them may take
    /// long.
    fn rows(&self) -> Option<&CompiledTable<'_>>;

    /// Whether another thread is still to make them.
    fn is_pending(&self) -> bool;

    /// The row of a frame by the code that it has yet to run. `None` if that does not show the
    /// caller.
    fn exit_row(
        &self,
        code: CodeAddr,
        bias: LoadBias,
        registers: &Registers,
    ) -> Option<Row<'static>>;
}

/// A cache of entries for addresses of one module. A walk through a recursion looks up the same few
/// repeatedly, and without a search table each look-up scans the whole section. Fixed size; a later
/// address replaces an earlier one.
#[derive(Debug)]
pub struct EntryCache {
    slots: [Cell<Option<CachedEntry>>; EntryCache::SLOTS],
}

/// An address and the offset of the entry that covers it, if any.
#[derive(Debug, Clone, Copy)]
struct CachedEntry {
    pc: Vaddr,
    origin: Option<u64>,
}

impl EntryCache {
    const BITS: u32 = 6;
    const SLOTS: usize = 1 << EntryCache::BITS;

    /// An empty cache.
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

    /// The result of `cfi.row(pc, row)`.
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

/// The row of an address, and the bounds of its entry.
#[derive(Debug, Clone, Copy)]
pub struct ModuleRow<'e, 'm> {
    /// The row.
    pub row: &'e Row<'m>,
    /// The first address of the row's entry.
    pub entry_start: Vaddr,
    /// One past its last address.
    pub entry_end: Vaddr,
    /// Whether the row is from a table or was synthesized from the code.
    pub evidence: Evidence,
}

impl<'m> Module<'m> {
    /// Decodes the row that holds at an address of the module into `row`.
    ///
    /// # Errors
    ///
    /// [`NoRow`] gives the reason if there is none.
    pub fn row<'e>(&self, pc: Vaddr, row: &'e mut Row<'m>) -> Result<ModuleRow<'e, 'm>, NoRow> {
        let entry = match self.entry_by_table(pc, row) {
            Err(missing @ (NoRow::Hole | NoRow::NoTable)) => {
                let synthesized = self.synthesized.ok_or(missing)?;
                let rows = match synthesized.rows() {
                    None if synthesized.is_pending() => Err(NoRow::Pending),
                    rows => rows.ok_or(missing),
                }?;
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

    /// Decodes the unwind tables' row for an address into `row`; yields the bounds of its entry.
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
    /// The row that holds at the call before a return address, if the compiled table's call-site
    /// part has it: the same as [`Module::row`] for the byte before, faster. Not for entry code and
    /// signal trampolines, which need more than the row.
    #[inline(always)]
    pub(crate) fn row_of_call(&self, address: Vaddr) -> Option<(&'m CompiledTable<'m>, RowRef)> {
        let compiled = self.compiled?;
        let (start, code) = self.code?;
        let offset = usize::try_from(address.0.checked_sub(start.0)?).ok()?;
        if self.may_be_entry_code(address)
            || compiled.abi().arch.begins_trampoline(code.get(offset..)?)
        {
            return None;
        }
        let before = call_test::window(code, offset);
        let row = compiled.call_sites().row(address, before).ok()??;
        Some((compiled, row))
    }

    /// The row that holds at an instruction, by the compiled table: the same as [`Module::row`],
    /// faster. Not for entry code, which needs more than the row.
    pub(crate) fn row_of_instruction(&self, pc: Vaddr) -> Option<(&'m CompiledTable<'m>, RowRef)> {
        let compiled = self.compiled?;
        if self.may_be_entry_code(pc) {
            return None;
        }
        Some((compiled, compiled.lookup(pc).ok()??.row))
    }

    /// Whether an address is in entry code or shortly after it.
    #[inline(always)]
    fn may_be_entry_code(&self, address: Vaddr) -> bool {
        /// The limit of entry code, in bytes.
        const MAX_ENTRY_CODE_BYTES: u64 = 1 << 16;
        let entry = self.entry;
        entry.is_some_and(|entry| address.0.wrapping_sub(entry.0) <= MAX_ENTRY_CODE_BYTES)
    }

    /// The rules for the stack pointer and the frame pointer (`watched`) in the row at an address,
    /// if the row is usual: the same as [`Module::row`], faster. For modules without a compiled
    /// table.
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
    // A row always has an entry.
    let entry = compiled.entry(pc)?.ok_or(TableCorruption::Entries)?;
    Ok(entry.start..entry.end)
}
