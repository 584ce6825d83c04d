//! Where a frame stands, and what its registers hold.

use unspool_rows::{Abi, CodeAddr, Registers, RuntimeAddr};

/// A frame, as far as a step to its caller needs it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FrameState {
    pub(crate) abi: Abi,
    pub(crate) code: CodeAddr,
    pub(crate) registers: Registers,
    /// The bits of a code address that a pointer authentication code takes.
    pub(crate) pac_mask: u64,
}

impl FrameState {
    pub(crate) fn stack_pointer(&self) -> Option<RuntimeAddr> {
        self.registers
            .get(self.abi.arch.spec().stack_pointer)
            .map(RuntimeAddr)
    }
}
