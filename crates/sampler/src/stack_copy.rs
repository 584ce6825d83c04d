//! The memory of a sample: a copy of the top of the stack, and the contents of files.
//!
//! The copy begins at the stack pointer, but unwind tables also refer to memory below it. In an
//! epilogue, after registers were popped, tables still say that these are saved in their popped
//! slots. Nothing has written there since, so a slot's value is still in the register. The
//! instructions before the program counter show which register.

use unspool_rows::memory::{Unreadable, UnreadableReason};
use unspool_rows::{CodeAddr, Memory, RuntimeAddr};
use unspool_unwind::{InnermostFrame as _, WalkResult};

use crate::address_space::ProcessSpace;
use crate::stack_extension::SplicePoint;
use crate::unwinder::SampleTop;

mod popped;

/// Memory further from the stack pointer is not part of the same stack.
///
/// A copy shorter than requested does not prove that the stack ends there. The kernel does not copy
/// untouched pages, and large frames contain some.
const MAX_STACK_BYTES: u64 = 16 << 20;

/// The memory of a thread when it was sampled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StackCopy<'s> {
    space: &'s ProcessSpace,
    start: u64,
    bytes: &'s [u8],
    top: &'s SampleTop<'s>,
}

impl<'s> StackCopy<'s> {
    pub(crate) fn new(space: &'s ProcessSpace, top: &'s SampleTop<'s>, stack: &'s [u8]) -> Self {
        StackCopy {
            space,
            start: top.stack_pointer(),
            bytes: stack,
            top,
        }
    }

    /// The address of its first byte.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// The copied bytes.
    pub(crate) fn bytes(&self) -> &'s [u8] {
        self.bytes
    }

    /// The splice point to the memory beyond the copy, if a walk ended there, at a frame's code
    /// address.
    pub(crate) fn splice_point(
        &self,
        walk: &WalkResult,
        code: CodeAddr,
    ) -> Option<SplicePoint<'s>> {
        let unreadable = walk.end.unreadable()?;
        (unreadable.reason == UnreadableReason::NotRecorded).then_some(())?;
        Some(SplicePoint {
            space: self.space,
            code,
            slot: walk.code_at?.0,
            pac_mask: self.top.pac_mask(),
        })
    }

    /// The same with more of the stack.
    pub(crate) fn with<'b>(&self, bytes: &'b [u8]) -> StackCopy<'b>
    where
        's: 'b,
    {
        StackCopy { bytes, ..*self }
    }

    /// The word at an address below the stack pointer, if it was popped just before.
    #[cold]
    fn popped(&self, addr: u64) -> Option<u64> {
        let below = self.start.checked_sub(addr)?;
        let code = self.top.code().address().0;
        let before = code.checked_sub(popped::MAX_CODE_BYTES as u64)?;
        let code = self
            .space
            .code_in_file(RuntimeAddr(before), popped::MAX_CODE_BYTES)?;
        let register = popped::register(self.top.abi().arch, code, below)?;
        self.top.register(register)
    }

    /// The copied bytes from an address on.
    pub(crate) fn copied(&self, addr: u64) -> &'s [u8] {
        let at = addr.checked_sub(self.start);
        let at = at.and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| self.bytes.get(at..)).unwrap_or_default()
    }
}

impl Memory for StackCopy<'_> {
    fn read(&self, addr: RuntimeAddr, into: &mut [u8]) -> Result<(), Unreadable> {
        let copied = self.copied(addr.0);
        if let Some(bytes) = copied.get(..into.len()) {
            into.copy_from_slice(bytes);
            return Ok(());
        }
        if let Some(bytes) = self.space.code_in_file(addr, into.len()) {
            into.copy_from_slice(bytes);
            return Ok(());
        }
        if let Ok(word) = <&mut [u8; 8]>::try_from(&mut *into)
            && let Some(popped) = self.popped(addr.0)
        {
            *word = popped.to_le_bytes();
            return Ok(());
        }
        Err(Unreadable {
            addr: RuntimeAddr(addr.0.saturating_add(copied.len() as u64)),
            reason: if addr.0.abs_diff(self.start) < MAX_STACK_BYTES {
                UnreadableReason::NotRecorded
            } else {
                UnreadableReason::Unmapped
            },
        })
    }

    #[inline]
    fn near(&self, end: RuntimeAddr) -> Option<[u8; 8]> {
        let at = end.0.wrapping_sub(8).wrapping_sub(self.start);
        let word = self.bytes.get(usize::try_from(at).ok()?..)?;
        word.first_chunk().copied()
    }

    #[inline]
    fn near_pair(&self, end: RuntimeAddr, below: u64) -> Option<[[u8; 8]; 2]> {
        let end = usize::try_from(end.0.wrapping_sub(self.start)).ok()?;
        let length = usize::try_from(below).ok()?.checked_add(8)?;
        let words = self.bytes.get(end.checked_sub(length)?..end)?;
        Some([*words.last_chunk()?, *words.first_chunk()?])
    }
}
