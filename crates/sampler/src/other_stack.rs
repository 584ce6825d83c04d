//! Stacks that go on elsewhere in memory: a thread that runs C code for Go is on a stack of its
//! own, and its callers are on the goroutine's.
//!
//! The kernel copies only the stack that the stack pointer is on. The other one does not change
//! while the thread is in the C code, so it is read when the sample is processed. If the thread has
//! left the code since, the callers may be others. So they are marked as spliced, and discarded if
//! they do not lead to a root.

use std::cell::RefCell;

use unspool_process::read_memory;
use unspool_rows::memory::{Unreadable, UnreadableReason};
use unspool_rows::{Memory, RuntimeAddr};

use crate::stack_copy::StackCopy;

const BLOCK_BYTES: usize = 4096;
/// The most memory read for a sample: 1 MiB.
const MAX_BLOCKS: usize = 256;

/// Memory of a thread, read while one sample is unwound. Keeps its storage for the next.
#[derive(Debug, Default)]
pub(crate) struct BlockCache {
    blocks: Vec<(u64, [u8; BLOCK_BYTES])>,
}

/// The memory of a sample, and where it has none, of the thread as it is now.
pub(crate) struct SampleAndThread<'s> {
    copy: &'s StackCopy<'s>,
    tid: u32,
    cache: RefCell<&'s mut BlockCache>,
}

impl<'s> SampleAndThread<'s> {
    pub(crate) fn new(copy: &'s StackCopy<'s>, tid: u32, cache: &'s mut BlockCache) -> Self {
        cache.blocks.clear();
        SampleAndThread {
            copy,
            tid,
            cache: RefCell::new(cache),
        }
    }

    /// One byte range within a block.
    fn read_block(&self, addr: u64, into: &mut [u8]) -> Option<()> {
        let mut cache = self.cache.borrow_mut();
        let (start, at) = (addr - addr % BLOCK_BYTES as u64, addr % BLOCK_BYTES as u64);
        let known = cache.blocks.iter().position(|(known, _)| *known == start);
        let index = match known {
            Some(index) => index,
            None if cache.blocks.len() < MAX_BLOCKS => {
                let mut bytes = [0; BLOCK_BYTES];
                let read = read_memory(self.tid, RuntimeAddr(start), &mut bytes).ok()?;
                (read == BLOCK_BYTES).then(|| cache.blocks.push((start, bytes)))?;
                cache.blocks.len() - 1
            }
            None => return None,
        };
        let (_, bytes) = cache.blocks.get(index)?;
        let at = usize::try_from(at).ok()?;
        into.copy_from_slice(bytes.get(at..at.checked_add(into.len())?)?);
        Some(())
    }
}

impl Memory for SampleAndThread<'_> {
    fn read(&self, addr: RuntimeAddr, into: &mut [u8]) -> Result<(), Unreadable> {
        let unreadable = match self.copy.read(addr, into) {
            Err(unreadable) if unreadable.reason == UnreadableReason::Unmapped => unreadable,
            read => return read,
        };
        let mut at = addr.0;
        let mut rest = into;
        while !rest.is_empty() {
            let left = BLOCK_BYTES - usize::try_from(at % BLOCK_BYTES as u64).unwrap_or(0);
            let (part, others) = rest.split_at_mut(left.min(rest.len()));
            self.read_block(at, part).ok_or(unreadable)?;
            at = at.wrapping_add(part.len() as u64);
            rest = others;
        }
        Ok(())
    }
}
