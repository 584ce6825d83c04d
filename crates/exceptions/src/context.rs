//! `_Unwind_Context`: what personality routines see of a frame.

use core::ffi::c_int;

use unspool_rows::packed_row::SavedRegisters;

use crate::abi::UnwWord;
use crate::facts::ProcedureInfo;
use crate::walk::LandingFrame;

/// `_Unwind_Context`: a frame, with libgcc's layout on x86-64 (`struct _Unwind_Context`, gcc's
/// libgcc/unwind-dw2.c, since gcc 4.2). `_Unwind_Get*` and `_Unwind_Set*` of this library and of
/// any libgcc accept each other's contexts. A plugin may contain a statically linked libgcc, and
/// glibc begins the unwinds of `pthread_exit` and `pthread_cancel` with its own.
#[repr(C)]
#[derive(Debug)]
pub struct UnwindContext {
    /// By DWARF's numbers: values if `is_value` is set, else their addresses. The last is unused.
    pub registers: [UnwWord; UnwindContext::REGISTERS],
    /// The stack pointer of the frame: the CFA of the frame that it called.
    pub cfa: UnwWord,
    /// The code address.
    pub ip: UnwWord,
    /// The language-specific data area, or 0.
    pub lsda: UnwWord,
    /// Unused on x86-64.
    pub text_base: UnwWord,
    /// The base of data-relative pointers.
    pub data_base: UnwWord,
    /// The start of the function.
    pub procedure: UnwWord,
    /// The two bits below.
    pub flags: UnwWord,
    /// Unused: 0.
    pub version: UnwWord,
    /// The size of pushed arguments, in bytes: in contexts of libgcc only.
    pub args_size: UnwWord,
    /// Whether a register's entry is its value, if the flag `EXTENDED` is set.
    pub is_value: [u8; UnwindContext::REGISTERS],
}

impl UnwindContext {
    /// The number of entries: rax to r15, the return address, and one more.
    pub(crate) const REGISTERS: usize = 18;
    /// `SIGNAL_FRAME_BIT`: the frame was interrupted.
    pub(crate) const INTERRUPTED: UnwWord = 1 << 63;
    /// `EXTENDED_CONTEXT_BIT`: `is_value` is valid.
    pub(crate) const EXTENDED: UnwWord = 1 << 62;

    /// A frame, with all registers as values: those that calls do not preserve are 0.
    #[inline(always)]
    #[must_use]
    pub fn new(frame: &LandingFrame, info: &ProcedureInfo) -> UnwindContext {
        let [rbx, rbp, r12, r13, r14, r15, rsp, rip] = frame.registers.values();
        UnwindContext {
            registers: [
                0, 0, 0, rbx, 0, 0, rbp, rsp, 0, 0, 0, 0, r12, r13, r14, r15, rip, 0,
            ],
            cfa: rsp,
            ip: rip,
            lsda: info.lsda,
            text_base: 0,
            data_base: 0,
            procedure: info.start,
            flags: if frame.is_interrupted() {
                UnwindContext::EXTENDED | UnwindContext::INTERRUPTED
            } else {
                UnwindContext::EXTENDED
            },
            version: 0,
            args_size: 0,
            is_value: [1; UnwindContext::REGISTERS],
        }
    }

    /// Takes back what a personality routine has set: everything that a landing pad finds.
    pub(crate) fn install(&self, frame: &mut LandingFrame) {
        for (value, number) in frame
            .registers
            .preserved
            .iter_mut()
            .zip(SavedRegisters::REGISTERS)
        {
            if let Some(shown) = self.registers.get(usize::from(number)) {
                *value = *shown;
            }
        }
        frame.registers.code = self.ip;
    }

    /// The address of a register's value; null for an unknown value or register.
    pub(crate) fn register(&mut self, number: c_int) -> *mut UnwWord {
        let Ok(number) = usize::try_from(number) else {
            return core::ptr::null_mut();
        };
        let is_extended = self.flags & UnwindContext::EXTENDED != 0;
        let is_value = is_extended && self.is_value.get(number).is_some_and(|is| *is != 0);
        match self.registers.get_mut(number) {
            Some(value) if is_value => value,
            Some(addr) => {
                let addr = usize::try_from(*addr).unwrap_or(0);
                core::ptr::with_exposed_provenance_mut(addr)
            }
            None => core::ptr::null_mut(),
        }
    }
}
