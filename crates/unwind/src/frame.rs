//! A frame's code address and registers.

use unspool_rows::{Abi, CodeAddr, Registers, RuntimeAddr};

/// A frame, with everything that a step to its caller needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FrameState {
    pub(crate) abi: Abi,
    pub(crate) code: CodeAddr,
    pub(crate) registers: Registers,
    /// The bits of a code address that hold a pointer authentication code.
    pub(crate) pac_mask: u64,
}

impl FrameState {
    pub(crate) fn stack_pointer(&self) -> Option<RuntimeAddr> {
        self.registers
            .get(self.abi.arch.spec().stack_pointer)
            .map(RuntimeAddr)
    }

    /// A code address that may be signed, without the signature.
    pub(crate) fn without_pac(&self, address: u64) -> u64 {
        address & !self.pac_mask
    }
}
