//! The memory of a sample: a copy of the top of the stack, and what the files have.

use unspool_ir::memory::{Unreadable, UnreadableReason};
use unspool_ir::{Memory, RuntimeAddr};
use unspool_perf::Stack;

use crate::space::Space;

/// The memory of a thread when it was sampled.
#[derive(Debug)]
pub(crate) struct StackCopy<'s> {
    space: &'s Space,
    start: u64,
    bytes: &'s [u8],
    /// Whether the stack goes on where the copy ends.
    is_cut: bool,
}

impl<'s> StackCopy<'s> {
    pub(crate) fn new(space: &'s Space, stack_pointer: u64, stack: Stack<'s>) -> Self {
        StackCopy {
            space,
            start: stack_pointer,
            bytes: stack.bytes,
            is_cut: stack.bytes.len() == stack.asked,
        }
    }

    fn copied(&self, addr: u64) -> &'s [u8] {
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
        let end = self.start.saturating_add(self.bytes.len() as u64);
        Err(Unreadable {
            addr: RuntimeAddr(
                addr.0
                    .max(end.min(addr.0.saturating_add(copied.len() as u64))),
            ),
            why: match self.is_cut || addr.0 < self.start {
                true => UnreadableReason::NotRecorded,
                false => UnreadableReason::Unmapped,
            },
        })
    }

    #[inline]
    fn near(&self, end: RuntimeAddr) -> Option<[u8; 8]> {
        let at = end.0.wrapping_sub(8).wrapping_sub(self.start);
        let word = self.bytes.get(usize::try_from(at).ok()?..)?;
        word.first_chunk().copied()
    }
}
