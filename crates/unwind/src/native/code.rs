//! A table's machine code, mapped.

use core::fmt;

use unspool_native_table::{ObjectView, StepStatus};
use unspool_rows::{LoadBias, Registers, Vaddr};
#[cfg(feature = "std")]
use unspool_table_store::NativeObject;

use super::sys;

/// The registers of a frame, as the code's input and output: `struct unspool_frame`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct NativeFrame {
    /// Values by DWARF number.
    pub values: [u64; NativeFrame::REGISTERS],
    /// Bit n: register n is known.
    pub known: u64,
    /// Output: the CFA of the callee, the frame before the step.
    pub cfa: u64,
}

impl NativeFrame {
    /// The code uses the registers below this number.
    pub const REGISTERS: usize = 17;

    /// A frame with the registers that the code uses.
    #[must_use]
    pub fn from_registers(registers: &Registers) -> NativeFrame {
        let (values, known) = registers.first();
        NativeFrame {
            values,
            known: u64::try_from(known).unwrap_or(0), // 17 bits fit
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

/// Memory for the code: the bytes of a stack, and any other readable memory.
#[derive(Debug)]
pub struct NativeMemory<'m, R> {
    /// Read directly.
    pub stack: &'m [u64],
    /// Called for all other memory: a number of 1 to 8 bytes, the second argument, at an address.
    pub read: R,
}

/// A table's machine code, mapped.
///
/// No page is ever writable and executable at once, and none is the file's: the checked bytes are
/// the bytes that run.
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
    /// Maps the code of an object; `None` if the system refuses, with its error number set.
    pub(crate) fn map(object: &ObjectView<'_>) -> Option<NativeCode> {
        Some(NativeCode {
            map: sys::CodeMap::new(&object.mapped())?,
            entry: object.entry(),
        })
    }

    /// The same for a trusted object.
    #[cfg(feature = "std")]
    pub(crate) fn from_trusted(object: &NativeObject) -> Option<NativeCode> {
        NativeCode::map(object.object())
    }

    /// Steps from a frame at a link-time address of the code, less 1 if it is a return address.
    /// `None` for a number that no object returns.
    ///
    /// Async-signal-safe if the memory is.
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
