//! Machine code of a table, mapped.

use core::fmt;

use unspool_native_table::{ObjectView, StepStatus};
use unspool_rows::{LoadBias, Registers, Vaddr};
#[cfg(feature = "std")]
use unspool_table_store::NativeObject;

use super::sys;

/// The registers of a frame, as the code takes and leaves them: `struct unspool_frame`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct NativeFrame {
    /// By their DWARF numbers.
    pub values: [u64; NativeFrame::REGISTERS],
    /// Bit n: register n is known.
    pub known: u64,
    /// Written: the CFA of the frame that was left.
    pub cfa: u64,
}

impl NativeFrame {
    /// The code knows of the registers below this one.
    pub const REGISTERS: usize = 17;

    /// A frame with the registers that the code knows of.
    #[must_use]
    pub fn from_registers(registers: &Registers) -> NativeFrame {
        let (values, known) = registers.first();
        NativeFrame {
            values,
            known: u64::try_from(known).unwrap_or(0), // of so few registers it is
            cfa: 0,
        }
    }

    /// The value of a register, if it is known.
    #[must_use]
    pub fn get(&self, register: u16) -> Option<u64> {
        let value = self.values.get(usize::from(register))?;
        (self.known >> register & 1 != 0).then_some(*value)
    }
}

/// Memory for the code: the bytes of a stack, and whatever else can be read.
#[derive(Debug)]
pub struct NativeMemory<'m, R> {
    /// Read directly.
    pub stack: &'m [u64],
    /// Asked for all else: a number of so many bytes, 1 to 8, at an address.
    pub read: R,
}

/// Machine code of a table, mapped.
///
/// No page is ever writable and executable, and none is the file's: what was looked at is what runs.
pub struct NativeCode {
    map: sys::CodeMap,
    entry: u64,
}

impl fmt::Debug for NativeCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NativeCode").finish_non_exhaustive()
    }
}

impl NativeCode {
    /// Maps the code of an object; `None` if the system refuses, which says why as after its other calls.
    pub(crate) fn map(object: &ObjectView<'_>) -> Option<NativeCode> {
        Some(NativeCode {
            map: sys::CodeMap::new(&object.mapped())?,
            entry: object.entry(),
        })
    }

    /// The same of an object that may be run.
    #[cfg(feature = "std")]
    pub(crate) fn of_trusted(object: &NativeObject) -> Option<NativeCode> {
        NativeCode::map(object.object())
    }

    /// Steps from a frame at an address of the code as linked, less 1 if it is a return address; `None` for a number
    /// that no object returns.
    ///
    /// Async-signal-safe as far as the memory is.
    #[inline]
    pub fn step<R: FnMut(u64, u64) -> Option<u64>>(
        &self,
        frame: &mut NativeFrame,
        address: Vaddr,
        bias: LoadBias,
        memory: &mut NativeMemory<'_, R>,
    ) -> Option<StepStatus> {
        let status = self.map.step(self.entry, frame, address.0, bias.0, memory);
        StepStatus::from_number(status)
    }
}
