//! The own process: procedures and their unwind information, read where the loader mapped them.
//!
//! Async-signal-safe: nothing here allocates or locks. The kernel is asked whether memory is
//! readable, once for each page of a thread's stack.

use core::ops::ControlFlow;
use core::ptr;

use unspool_cfi::{Lookup, sframe};
use unspool_exceptions::facts::{BadEntry, EntryFacts, PersonalityAddr, ProcedureInfo};
use unspool_exceptions::generated_code::GeneratedCode;
use unspool_rows::{LoadBias, Memory, Row, RuntimeAddr, Vaddr};
use unspool_unwind::local::pool::with_evaluator;
use unspool_unwind::local::{OwnMemory, ReadableMemory};
use unspool_unwind::{ModuleSlot, Modules, local};

use crate::abi::{self, DynInfo, Error, ProcInfo};
use crate::entries::{self, EntryHeaders, FdeWithCie};
use crate::space::AddressSpace;
use crate::sys::dynamic;
use crate::{dyn_info_list, remote_cfi};

/// Cached facts of a walk on the own stack, so that nothing is asked twice. Other walks cache
/// nothing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadableCache {
    memory: ReadableMemory,
    /// A bit set of the modules known to be loaded, by number.
    modules: u64,
}

impl ReadableCache {
    /// The start of a walk in an address space.
    #[must_use]
    pub(crate) fn new(space: &AddressSpace) -> ReadableCache {
        if space.is_own() {
            ReadableCache {
                memory: ReadableMemory::stack(),
                modules: local::modules().staying(),
            }
        } else {
            ReadableCache {
                memory: ReadableMemory::NOTHING,
                modules: 0,
            }
        }
    }

    /// The word at an address, if it is known to be readable.
    #[inline(always)]
    #[must_use]
    pub(crate) fn word(&self, addr: u64) -> Option<u64> {
        self.memory.word(RuntimeAddr(addr))
    }

    /// The word at an address, after asking the kernel whether the memory around it is readable.
    ///
    /// # Errors
    ///
    /// [`Error::INVALID`] if it cannot be read.
    #[cold]
    #[inline(never)]
    pub(crate) fn probe_word(&mut self, addr: u64) -> Result<u64, Error> {
        self.memory = ReadableMemory::around(RuntimeAddr(addr));
        // A word on two pages is checked separately.
        let read_apart = || {
            let mut word = [0; 8];
            let read = OwnMemory::with_own_stack().read(RuntimeAddr(addr), &mut word);
            read.ok().map(|()| u64::from_le_bytes(word))
        };
        self.word(addr).or_else(read_apart).ok_or(Error::INVALID)
    }

    /// Whether a module is known to be loaded.
    #[inline(always)]
    #[must_use]
    pub(crate) fn has(&self, slot: ModuleSlot) -> bool {
        slot.0 < 64 && self.modules >> slot.0 & 1 != 0
    }

    /// Whether the module of a row, if it has one, is loaded; asks the loader.
    pub(crate) fn probe_module(&mut self, slot: Option<ModuleSlot>) -> bool {
        let Some(place) = slot else {
            return true;
        };
        let is_there = self.has(place) || local::modules().is_mapped(place);
        if is_there && place.0 < 64 {
            self.modules |= 1 << place.0;
        }
        is_there
    }
}

/// The origin of the row at an address of the own process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowOrigin {
    /// Run-time minus link-time address of the module.
    pub(crate) bias: LoadBias,
    /// The number of the module, if it has one.
    pub(crate) slot: Option<ModuleSlot>,
    /// One past the last address of the entry.
    pub(crate) end: RuntimeAddr,
}

/// Makes `row` the one at an address: its module's, or else a registered one. After an error the
/// content of `row` has no meaning.
///
/// # Errors
///
/// [`Error::NO_INFO`] if no entry covers it, [`Error::BAD_FRAME`] if its entry is bad.
pub(crate) fn row(pc: RuntimeAddr, row: &mut Row<'static>) -> Result<RowOrigin, Error> {
    let found = ModuleTables::find(pc).and_then(|table| table.row(pc, row));
    or_registered(found, || registered_row(pc, row))
}

// Not inlined: other callers do not need its stack.
#[cold]
#[inline(never)]
fn registered_row(pc: RuntimeAddr, row: &mut Row<'static>) -> Result<RowOrigin, Error> {
    RegisteredTable::find(pc)?.row(pc, row)
}

/// If the table of an address's module has no entry, looks in the registered tables.
fn or_registered<T>(
    found: Result<T, Error>,
    registered: impl FnOnce() -> Result<T, Error>,
) -> Result<T, Error> {
    match found {
        Err(Error::NO_INFO) if dynamic::is_any_registered() => registered(),
        found => found,
    }
}

/// The tables of a module.
struct ModuleTables {
    lookup: Option<&'static Lookup<'static>>,
    /// Used if the other table has no entry.
    sframe: Option<&'static sframe::SframeLookup<'static>>,
    bias: LoadBias,
    slot: Option<ModuleSlot>,
}

impl ModuleTables {
    fn find(pc: RuntimeAddr) -> Result<ModuleTables, Error> {
        let module = local::modules().module(pc).ok_or(Error::NO_INFO)?;
        Ok(ModuleTables {
            lookup: module.cfi,
            sframe: module.sframe,
            bias: module.bias,
            slot: module.slot,
        })
    }

    fn row(&self, pc: RuntimeAddr, row: &mut Row<'static>) -> Result<RowOrigin, Error> {
        let pc = self.bias.to_vaddr(pc);
        let found = match self.lookup {
            Some(lookup) => with_evaluator(|evaluator| lookup.row_with(evaluator, pc, row)),
            None => Ok(None),
        };
        let end = match found.map_err(|_| Error::BAD_FRAME)? {
            Some(found) => found.end,
            None => self.sframe_end(pc, row)?,
        };
        Ok(RowOrigin {
            bias: self.bias,
            slot: self.slot,
            end: self.bias.to_runtime(end),
        })
    }

    /// Makes `row` the one that SFrame has; returns the end of its entry.
    // Not inlined: other callers do not need its stack.
    #[cold]
    #[inline(never)]
    fn sframe_end(&self, pc: Vaddr, row: &mut Row<'static>) -> Result<Vaddr, Error> {
        let sframe = self.sframe.ok_or(Error::NO_INFO)?;
        let entry = sframe.row(pc, row).map_err(|_| Error::BAD_FRAME)?;
        entry.map(|entry| entry.end).ok_or(Error::NO_INFO)
    }

    fn procedure(&self, pc: RuntimeAddr) -> Result<ProcInfo, Error> {
        let by_lookup = match self.lookup {
            Some(lookup) => self.procedure_by(lookup, pc),
            None => Err(Error::NO_INFO),
        };
        match by_lookup {
            Err(Error::NO_INFO) => self.procedure_by_sframe(pc),
            known => known,
        }
    }

    /// SFrame has no personality routines.
    fn procedure_by_sframe(&self, pc: RuntimeAddr) -> Result<ProcInfo, Error> {
        let sframe = self.sframe.ok_or(Error::NO_INFO)?;
        let entry = sframe.entry(self.bias.to_vaddr(pc));
        let entry = entry.map_err(|_| Error::BAD_FRAME)?.ok_or(Error::NO_INFO)?;
        Ok(ProcInfo {
            start_ip: self.bias.to_runtime(entry.start).0,
            end_ip: self.bias.to_runtime(entry.end()).0,
            ..ProcInfo::EMPTY
        })
    }

    fn procedure_by(&self, lookup: &Lookup<'_>, pc: RuntimeAddr) -> Result<ProcInfo, Error> {
        let found = lookup.entry(self.bias.to_vaddr(pc));
        let (cie, fde) = found.map_err(|_| Error::BAD_FRAME)?.ok_or(Error::NO_INFO)?;
        // Indirect pointers are in the module: the stack's range is not needed.
        let memory = OwnMemory::with_modules();
        let resolved = |pointer| entries::resolved(&memory, self.bias, pointer);
        let section = self.bias.to_runtime(lookup.section().address);
        let address = usize::try_from(section.0.wrapping_add(fde.offset));
        Ok(ProcInfo {
            start_ip: self.bias.to_runtime(fde.start).0,
            end_ip: self.bias.to_runtime(fde.end).0,
            lsda: resolved(fde.lsda)?,
            handler: resolved(cie.personality)?,
            format: abi::FORMAT_TABLE,
            unwind_info: ptr::without_provenance_mut(address.map_err(|_| Error::INVALID)?),
            ..ProcInfo::EMPTY
        })
    }
}

/// The registered table for an address.
struct RegisteredTable {
    info: DynInfo,
    /// The entry from its search table.
    entries: FdeWithCie<'static>,
}

impl RegisteredTable {
    fn find(pc: RuntimeAddr) -> Result<RegisteredTable, Error> {
        let info = dynamic::registered(pc.0).ok_or(Error::NO_INFO)?;
        if info.format == abi::FORMAT_DYNAMIC {
            // A list of operations: not supported on x86-64, as in libunwind.
            return Err(Error::NO_INFO);
        }
        let memory = OwnMemory::with_own_stack();
        let address = remote_cfi::search_table(&memory, &info, pc.0)?;
        let headers = EntryHeaders::read(&memory, address, info.gp)?;
        let bytes = |addresses| dynamic::bytes(addresses).ok_or(Error::INVALID);
        Ok(RegisteredTable {
            entries: headers.parse(bytes)?,
            info,
        })
    }

    fn row(&self, pc: RuntimeAddr, row: &mut Row<'static>) -> Result<RowOrigin, Error> {
        let bias = LoadBias(self.info.load_offset);
        let end = bias.to_runtime(self.entries.addresses().end);
        let mut found = Err(Error::NO_INFO);
        self.entries.rows(bias, |at| {
            if !(at.start..at.end).contains(&pc.0) {
                return Ok(ControlFlow::Continue(()));
            }
            *row = *at.row;
            found = Ok(RowOrigin {
                bias: LoadBias(0),
                slot: None,
                end,
            });
            Ok(ControlFlow::Break(()))
        })?;
        found
    }

    fn procedure(&self, pc: RuntimeAddr) -> Result<ProcInfo, Error> {
        let info = self
            .entries
            .info(&OwnMemory::with_own_stack(), &self.info)?;
        if (info.start_ip..info.end_ip).contains(&pc.0) {
            Ok(info)
        } else {
            Err(Error::NO_INFO)
        }
    }
}

/// Code registered with `_U_dyn_register`, for exceptions.
#[derive(Debug)]
pub(crate) struct RegisteredCode;

impl GeneratedCode for RegisteredCode {
    fn row_and_entry(
        &self,
        pc: RuntimeAddr,
        row: &mut Row<'static>,
    ) -> Result<Option<EntryFacts>, BadEntry> {
        if !dynamic::is_any_registered() {
            return Ok(None);
        }
        let mut facts = || {
            let table = RegisteredTable::find(pc)?;
            let bias = table.row(pc, row)?.bias;
            let info = table.procedure(pc)?;
            let procedure = ProcedureInfo {
                personality: PersonalityAddr::direct(info.handler),
                lsda: info.lsda,
                start: info.start_ip,
            };
            Ok(EntryFacts { procedure, bias })
        };
        match facts() {
            Ok(facts) => Ok(Some(facts)),
            Err(Error::NO_INFO) => Ok(None),
            Err(_) => Err(BadEntry),
        }
    }

    fn generation(&self, _pc: RuntimeAddr) -> Option<u16> {
        None
    }
}

/// The procedure that covers an address, for the C interface.
///
/// # Errors
///
/// [`Error::NO_INFO`] if none does, [`Error::BAD_FRAME`] if its entry is bad.
pub(crate) fn procedure_info(pc: RuntimeAddr) -> Result<ProcInfo, Error> {
    let found = ModuleTables::find(pc).and_then(|table| table.procedure(pc));
    or_registered(found, || match RegisteredTable::find(pc) {
        Ok(found) => found.procedure(pc),
        Err(Error::NO_INFO) => dynamic::registered(pc.0)
            .filter(|info| info.format == abi::FORMAT_DYNAMIC)
            .map(|info| dyn_info_list::described(&info))
            .ok_or(Error::NO_INFO),
        Err(error) => Err(error),
    })
}
