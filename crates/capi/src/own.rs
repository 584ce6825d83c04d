//! The own process: procedures and their unwind information, read where the loader mapped them.
//!
//! Async-signal-safe: nothing here allocates or locks. The kernel is asked for memory, once for each
//! page of a thread's stack.

use core::ops::Range;

use unspool_cfi::lookup::HdrTrust;
use unspool_cfi::{Cie, FdeEntry, Lookup, Section, SectionKind};
use unspool_ir::memory::read_uint;
use unspool_ir::{LoadBias, Memory, Pointer, Register, Row, RuntimeAddr, Vaddr};
use unspool_unwind::local::{Known, OwnMemory};
use unspool_unwind::{Modules, Place, local};

use crate::abi::{self, Error, ProcInfo};
use crate::remote_cfi;
use crate::space::AddressSpace;
use crate::sys::dynamic;

/// What a walk of the own stack has found out, so that nothing is asked twice. Other walks find
/// out nothing.
#[derive(Debug, Clone, Copy)]
pub struct Learnt {
    memory: Known,
    /// The modules that are there, by their numbers as bits.
    modules: u64,
}

impl Learnt {
    /// At the beginning of a walk in an address space.
    #[must_use]
    pub fn of(space: &AddressSpace) -> Learnt {
        match space.is_own() {
            true => Learnt {
                memory: Known::stack(),
                modules: local::modules().staying(),
            },
            false => Learnt {
                memory: Known::NOTHING,
                modules: 0,
            },
        }
    }

    /// The word at an address, if that is known to be readable.
    #[inline(always)]
    #[must_use]
    pub fn word(&self, addr: u64) -> Option<u64> {
        self.memory.word(RuntimeAddr(addr))
    }

    /// The word at an address, where the kernel is asked for what is around it.
    ///
    /// # Errors
    ///
    /// [`Error::INVALID`] if it cannot be read.
    #[cold]
    #[inline(never)]
    pub fn asks_for_word(&mut self, addr: u64) -> Result<u64, Error> {
        self.memory = Known::around(RuntimeAddr(addr));
        // One that is in two pages is asked for apart.
        let read_apart = || {
            let mut word = [0; 8];
            let read = OwnMemory::here().read(RuntimeAddr(addr), &mut word);
            read.ok().map(|()| u64::from_le_bytes(word))
        };
        self.word(addr).or_else(read_apart).ok_or(Error::INVALID)
    }

    /// Whether a module is known to be there.
    #[inline(always)]
    #[must_use]
    pub fn has(&self, place: Place) -> bool {
        place.0 < 64 && self.modules >> place.0 & 1 != 0
    }

    /// Whether a module is there, if a row is of one; the loader is asked.
    pub fn asks_for(&mut self, place: Option<Place>) -> bool {
        let Some(place) = place else {
            return true;
        };
        let is_there = self.has(place) || local::modules().is_there(place);
        if is_there && place.0 < 64 {
            self.modules |= 1 << place.0;
        }
        is_there
    }
}

/// The row at an address of the own process, from the unwind table of its module.
#[derive(Debug)]
pub struct FoundRow {
    /// Run-time minus link-time address of the module.
    pub bias: LoadBias,
    /// The number of the module, if it has one.
    pub place: Option<Place>,
    /// The row.
    pub row: Row<'static>,
    /// One past the last address of the entry.
    pub end: RuntimeAddr,
}

/// The row at an address: its module's, or else a registered one.
///
/// # Errors
///
/// [`Error::NO_INFO`] where no entry covers it, [`Error::BAD_FRAME`] if its entry is bad.
pub fn row(pc: RuntimeAddr) -> Result<FoundRow, Error> {
    find(pc, |table| {
        let mut row = Row::new(Register(0));
        let found = table.lookup.row(table.bias.to_vaddr(pc), &mut row);
        let found = found.map_err(|_| Error::BAD_FRAME)?.ok_or(Error::NO_INFO)?;
        Ok(FoundRow {
            bias: table.bias,
            place: table.place,
            row,
            end: table.bias.to_runtime(found.end),
        })
    })
}

/// A table that may cover an address.
struct Table {
    lookup: Lookup<'static>,
    /// Where the section begins in memory.
    start: RuntimeAddr,
    bias: LoadBias,
    place: Option<Place>,
}

/// Looks in the table of the module at an address, and where that has nothing in what is registered.
fn find<T>(pc: RuntimeAddr, look: impl Fn(&Table) -> Result<T, Error>) -> Result<T, Error> {
    match Table::of_module(pc).and_then(|table| look(&table)) {
        Err(Error::NO_INFO) if dynamic::is_any_registered() => look(&Table::registered(pc)?),
        found => found,
    }
}

impl Table {
    fn of_module(pc: RuntimeAddr) -> Result<Table, Error> {
        let module = local::modules().module(pc).ok_or(Error::NO_INFO)?;
        let lookup = module.cfi.ok_or(Error::NO_INFO)?;
        Ok(Table {
            lookup: *lookup,
            start: module.bias.to_runtime(lookup.section().address),
            bias: module.bias,
            place: module.place,
        })
    }

    /// The one entry that a registered search table names, and its CIE, as a section.
    fn registered(pc: RuntimeAddr) -> Result<Table, Error> {
        let info = dynamic::registered(pc.0).ok_or(Error::NO_INFO)?;
        if info.format == abi::FORMAT_DYNAMIC {
            // A description of what each instruction does: nobody reads it on x86-64.
            return Err(Error::NO_INFO);
        }
        let address = remote_cfi::search_table(&OwnMemory::here(), &info, pc.0)?;
        let fde = entry(address)?;
        let back = number(address.wrapping_add(4))?;
        let cie = entry(address.wrapping_add(4).wrapping_sub(back))?;
        let (start, end) = (fde.start.min(cie.start), fde.end.max(cie.end));
        let length = end - start;
        if length > LONGEST_SECTION {
            return Err(Error::BAD_FRAME);
        }
        let section = Section {
            kind: SectionKind::EhFrame,
            data: dynamic::bytes(start, length).ok_or(Error::INVALID)?,
            address: Vaddr(start),
            text_base: None,
            data_base: None,
            abi: remote_cfi::ABI,
        };
        Ok(Table {
            lookup: Lookup::new(section, None, HdrTrust::Suspect),
            start: RuntimeAddr(start),
            bias: LoadBias(info.load_offset),
            place: None,
        })
    }
}

/// An entry that is further from its CIE is not believed, in bytes.
const LONGEST_SECTION: u64 = 16 << 20;

/// The addresses of the entry of a registered table.
fn entry(address: u64) -> Result<Range<u64>, Error> {
    let length = number(address)?;
    match address.checked_add(4 + length) {
        Some(end) if (4..LONGEST_SECTION).contains(&length) => Ok(address..end),
        _ => Err(Error::BAD_FRAME),
    }
}

fn number(address: u64) -> Result<u64, Error> {
    let word = read_uint(
        &OwnMemory::here(),
        RuntimeAddr(address),
        4,
        remote_cfi::ABI.endian,
    );
    word.map_err(|_| Error::INVALID)
}

/// What there is to know of the procedure that covers an address, as the C interface has it.
///
/// # Errors
///
/// [`Error::NO_INFO`] where none does, [`Error::BAD_FRAME`] if its entry is bad.
pub fn procedure_info(pc: RuntimeAddr) -> Result<ProcInfo, Error> {
    match Procedure::find(pc) {
        Ok(procedure) => procedure.info(&OwnMemory::here()),
        Err(Error::NO_INFO) => dynamic::registered(pc.0)
            .filter(|info| info.format == abi::FORMAT_DYNAMIC)
            .map(|info| ProcInfo {
                start_ip: info.start_ip,
                end_ip: info.end_ip,
                gp: info.gp,
                ..ProcInfo::EMPTY
            })
            .ok_or(Error::NO_INFO),
        Err(error) => Err(error),
    }
}

/// A procedure: what the entry of an address says beside its rows.
#[derive(Debug)]
pub struct Procedure {
    bias: LoadBias,
    cie: Cie<'static>,
    fde: FdeEntry<'static>,
    /// The address of the entry.
    address: RuntimeAddr,
}

impl Procedure {
    /// The procedure that covers an address.
    ///
    /// # Errors
    ///
    /// [`Error::NO_INFO`] where none does, [`Error::BAD_FRAME`] if its entry is bad.
    pub fn find(pc: RuntimeAddr) -> Result<Procedure, Error> {
        find(pc, |table| {
            let found = table.lookup.entry(table.bias.to_vaddr(pc));
            let (cie, fde) = found.map_err(|_| Error::BAD_FRAME)?.ok_or(Error::NO_INFO)?;
            Ok(Procedure {
                bias: table.bias,
                address: RuntimeAddr(table.start.0.wrapping_add(fde.offset)),
                cie,
                fde,
            })
        })
    }

    /// Its first address.
    #[must_use]
    pub fn start(&self) -> RuntimeAddr {
        self.bias.to_runtime(self.fde.start)
    }

    /// One past its last address.
    #[must_use]
    pub fn end(&self) -> RuntimeAddr {
        self.bias.to_runtime(self.fde.end)
    }

    /// Where a pointer of the entry leads to, or zero.
    fn resolved<M: Memory>(&self, pointer: Option<Pointer>, memory: &M) -> Result<u64, Error> {
        match pointer {
            None => Ok(0),
            Some(Pointer::Direct(addr)) => Ok(self.bias.to_runtime(addr).0),
            Some(Pointer::Indirect(slot)) => {
                let mut word = [0; 8];
                let read = memory.read(self.bias.to_runtime(slot), &mut word);
                read.map_err(|_| Error::INVALID)?;
                Ok(u64::from_le_bytes(word))
            }
        }
    }

    /// As the C interface has it. `memory` is the own.
    ///
    /// # Errors
    ///
    /// [`Error::INVALID`] if a pointer to a pointer cannot be read.
    pub fn info<M: Memory>(&self, memory: &M) -> Result<ProcInfo, Error> {
        let fde = usize::try_from(self.address.0).map_err(|_| Error::INVALID)?;
        Ok(ProcInfo {
            start_ip: self.start().0,
            end_ip: self.end().0,
            lsda: self.resolved(self.fde.lsda, memory)?,
            handler: self.resolved(self.cie.personality, memory)?,
            format: abi::FORMAT_TABLE,
            unwind_info: core::ptr::without_provenance_mut(fde),
            ..ProcInfo::EMPTY
        })
    }
}
