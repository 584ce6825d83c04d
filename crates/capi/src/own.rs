//! The own process: procedures and their unwind information, read where the loader mapped them.
//!
//! Async-signal-safe: nothing here allocates, locks or calls the system.

use unspool_cfi::lookup::Found;
use unspool_ir::{LoadBias, Memory, Pointer, RuntimeAddr};
use unspool_unwind::{Modules, Place, local};

use crate::abi::{self, Error, ProcInfo};

/// Whether a module is still where it was.
#[must_use]
pub fn is_there(place: Place) -> bool {
    local::modules().is_there(place)
}

/// What the unwind table says of an address.
#[derive(Debug)]
pub struct Procedure {
    /// Run-time minus link-time address of its module.
    pub bias: LoadBias,
    /// The number of its module, if it has one.
    pub place: Option<Place>,
    /// The row, and the entry that it is from.
    pub found: Found<'static>,
    /// The address of the entry.
    fde: RuntimeAddr,
}

impl Procedure {
    /// The procedure that covers an address.
    ///
    /// # Errors
    ///
    /// [`Error::NO_INFO`] where none does, [`Error::BAD_FRAME`] if its entry is bad.
    pub fn find(pc: RuntimeAddr) -> Result<Procedure, Error> {
        let module = local::modules().module(pc).ok_or(Error::NO_INFO)?;
        let table = module.cfi.ok_or(Error::NO_INFO)?;
        let found = table.row(module.bias.to_vaddr(pc));
        let found = found.map_err(|_| Error::BAD_FRAME)?.ok_or(Error::NO_INFO)?;
        let fde = table.section().address.offset(found.origin);
        Ok(Procedure {
            bias: module.bias,
            place: module.place,
            fde: module.bias.to_runtime(fde),
            found,
        })
    }

    /// Its first address.
    #[must_use]
    pub fn start(&self) -> RuntimeAddr {
        self.bias.to_runtime(self.found.start)
    }

    /// One past its last address.
    #[must_use]
    pub fn end(&self) -> RuntimeAddr {
        self.bias.to_runtime(self.found.end)
    }

    /// The address of its personality routine, or zero.
    fn personality<M: Memory>(&self, memory: &M) -> Result<u64, Error> {
        match self.found.personality {
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
    /// [`Error::INVALID`] if the address of the personality routine cannot be read.
    pub fn info<M: Memory>(&self, memory: &M) -> Result<ProcInfo, Error> {
        let lsda = self.found.lsda.map_or(0, |at| self.bias.to_runtime(at).0);
        let fde = usize::try_from(self.fde.0).map_err(|_| Error::INVALID)?;
        Ok(ProcInfo {
            start_ip: self.start().0,
            end_ip: self.end().0,
            lsda,
            handler: self.personality(memory)?,
            format: abi::FORMAT_TABLE,
            unwind_info: core::ptr::without_provenance_mut(fde),
            ..ProcInfo::EMPTY
        })
    }
}
