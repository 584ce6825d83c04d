//! Stacks of goroutines. A thread that runs C code or the runtime's own work for a goroutine is on a
//! stack of its own, and its callers are on the goroutine's.
//!
//! The kernel copies only the stack that the stack pointer is on. But Go code keeps frame pointers:
//! the innermost frame on the goroutine's stack is in rbp, also on the thread's stack. So the callers
//! are read from the thread's memory when the sample is processed. The goroutine may have gone on
//! since then. The kernel's own chain of frame pointers, which it followed when it took the sample,
//! tells: where it has another address, only its addresses are taken. In C code without frame
//! pointers there is no such chain. If the goroutine's stack has changed since the sample, the callers
//! are those of the thread's last sample with the same C function called from the same frame. All
//! these frames are marked as spliced, and discarded if they do not lead to a root.

use std::cell::RefCell;
use std::collections::HashMap;

use unspool_elf::{GoFunction, GoFunctions};
use unspool_perf_events::CallChain;
use unspool_process::read_memory;
use unspool_profile::{FrameEvidence, RawFrame};
use unspool_rows::memory::{Unreadable, UnreadableReason};
use unspool_rows::{Arch, CodeAddr, Memory, Registers, RuntimeAddr};
use unspool_unwind::{Cursor, Step, evidence};

use crate::address_space::ProcessSpace;
use crate::stack_copy::StackCopy;
use crate::unwinder::SampleTop;

/// A goroutine's stack that is read.
const BLOCK_BYTES: usize = 1 << 14;
/// The most memory read for a sample: 4 MiB.
const MAX_BLOCKS: usize = 256;
/// The most frames read for a sample.
const MAX_FRAMES: usize = 1 << 14;
/// The size of a direct call on x86-64.
const CALL_BYTES: u64 = 5;

/// A sample, and the frames found of it.
pub(crate) struct ThreadWalk<'w> {
    pub(crate) top: &'w SampleTop<'w>,
    pub(crate) space: &'w ProcessSpace,
    pub(crate) tid: u32,
    pub(crate) memory: &'w StackCopy<'w>,
    /// The kernel's chain.
    pub(crate) chain: CallChain<'w>,
}

/// Memory that was read, and its address.
type Block = (u64, Box<[u8; BLOCK_BYTES]>);

/// Finds the callers on goroutines' stacks. Keeps its storage for the next sample.
#[derive(Debug, Default)]
pub(crate) struct GoroutineStack {
    blocks: Vec<Block>,
    frames: Vec<RawFrame>,
    chain: Vec<u64>,
    /// The callers that were read before.
    known: HashMap<GoroutineCall, Vec<RawFrame>>,
}

/// The most calls whose callers are kept.
const MAX_KNOWN: usize = 1 << 12;
/// The most callers of one call that are kept.
const MAX_KNOWN_FRAMES: usize = 1 << 8;

/// A call from a goroutine's stack to code on the thread's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct GoroutineCall {
    tid: u32,
    /// The frame on the goroutine's stack.
    frame_pointer: u64,
    /// The outermost frames on the thread's stack.
    code: [u64; 2],
}

impl GoroutineStack {
    /// Adds the callers of a frame of Go that has none on its own stack, if they lead to a root.
    /// `frames[before..]` are those of the sample.
    pub(crate) fn extend(
        &mut self,
        walk: &ThreadWalk<'_>,
        frames: &mut Vec<RawFrame>,
        before: usize,
        end: evidence::End,
    ) -> evidence::End {
        if end.is_root() || walk.top.abi().arch != Arch::X86_64 {
            return end;
        }
        let own = frames.get(before..).unwrap_or_default();
        let Some(last) = own
            .last()
            .and_then(|frame| go_function(walk.space, frame.code))
        else {
            return end;
        };
        self.chain.clear();
        self.chain.extend(walk.chain.user());
        let is_known = |addr: &u64| own.iter().any(|frame| frame.code.address().0 == *addr);
        let known = self.chain.iter().rposition(is_known);
        self.chain.drain(..known.map_or(0, |last| last + 1));
        // Another thread's stack, or one that is only longer than the copy, is not read unseen.
        let is_elsewhere = end
            .unreadable()
            .is_none_or(|unreadable| unreadable.reason == UnreadableReason::Unmapped);
        if self.chain.is_empty() && !is_elsewhere {
            return end;
        }
        self.frames.clear();
        let Some(cursor) = cursor_at(walk, own.len()) else {
            return end;
        };
        let spec = walk.top.abi().arch.spec();
        let frame_pointer = spec.frame_pointer.and_then(|at| cursor.registers().get(at));
        let Some(frame_pointer) = frame_pointer else {
            return end;
        };
        let mut outermost = own.iter().rev().map(|frame| frame.code.address().0);
        let site = GoroutineCall {
            tid: walk.tid,
            frame_pointer,
            code: [0; 2].map(|_: u64| outermost.next().unwrap_or(0)),
        };
        if self.read(walk, frame_pointer, &last) {
            if self.known.len() >= MAX_KNOWN {
                self.known.clear();
            }
            if self.frames.len() <= MAX_KNOWN_FRAMES {
                self.known.insert(site, self.frames.clone());
            }
        } else if !self.take_chain(walk) {
            let known = self.known.get(&site).filter(|_| self.chain.is_empty());
            let Some(known) = known else {
                return end;
            };
            self.frames.clone_from(known);
        }
        frames.append(&mut self.frames);
        evidence::End::Outermost
    }

    /// Walks by the thread's memory from its frame pointer on. Returns whether that agrees with the
    /// kernel's chain, and leads to a root.
    fn read(&mut self, walk: &ThreadWalk<'_>, frame_pointer: u64, last: &GoFunction<'_>) -> bool {
        let GoroutineStack {
            blocks,
            frames,
            chain,
            known: _,
        } = self;
        blocks.clear();
        let memory = ThreadMemory {
            copy: walk.memory,
            tid: walk.tid,
            blocks: RefCell::new(blocks),
        };
        let spec = walk.top.abi().arch.spec();
        let Some(found) = saved_frame(&memory, frame_pointer) else {
            return false;
        };
        let mut expected = chain.iter().peekable();
        if expected
            .next()
            .is_some_and(|next| *next != found.return_address)
        {
            return false;
        }
        let skipped = callers_without_frames(walk.space, &memory, &found, last);
        frames.extend(skipped.into_iter().map(spliced));
        frames.push(spliced(found.return_address));
        let mut registers = Registers::new();
        registers.set(spec.stack_pointer, found.cfa);
        if let Some(register) = spec.frame_pointer {
            registers.set(register, found.frame_pointer);
        }
        let code = CodeAddr::Return(RuntimeAddr(found.return_address));
        let mut cursor = Cursor::with_code(walk.top.abi(), code, registers);
        while frames.len() < MAX_FRAMES {
            match cursor.step(walk.space, &memory) {
                Step::Caller(_) => {
                    let address = cursor.code().address().0;
                    frames.push(spliced(address));
                    // The chain lacks callers of functions without a frame, and has an end.
                    expected.next_if(|next| **next == address);
                }
                Step::End(end) => return end.is_root() && expected.next().is_none(),
            }
        }
        false
    }

    /// Takes the kernel's chain alone, if it leads to a root.
    fn take_chain(&mut self, walk: &ThreadWalk<'_>) -> bool {
        self.frames.clear();
        self.frames
            .extend(self.chain.iter().map(|address| spliced(*address)));
        let is_go = |frame: &RawFrame| go_function(walk.space, frame.code).is_some();
        let last = self.frames.last();
        let last = last.and_then(|frame| go_function(walk.space, frame.code));
        last.is_some_and(|last| last.is_root) && self.frames.iter().all(is_go)
    }
}

/// A cursor at the last of some frames that were found in the sample.
fn cursor_at(walk: &ThreadWalk<'_>, count: usize) -> Option<Cursor> {
    let mut cursor = walk.top.cursor();
    for _ in 1..count {
        if !matches!(cursor.step(walk.space, walk.memory), Step::Caller(_)) {
            return None;
        }
    }
    Some(cursor)
}

/// A frame's saved frame pointer, and what is above it.
struct SavedFrame {
    frame_pointer: u64,
    return_address: u64,
    cfa: u64,
}

fn saved_frame(memory: &dyn Memory, frame_pointer: u64) -> Option<SavedFrame> {
    Some(SavedFrame {
        frame_pointer: word(memory, frame_pointer)?,
        return_address: word(memory, frame_pointer.checked_add(8)?)?,
        cfa: frame_pointer.checked_add(16)?,
    })
}

/// The return addresses below a frame, the innermost first: of the frame's own function, if the
/// innermost function has no frame; and of one more function, which asked for a larger stack before
/// it had a frame (`runtime.morestack`). Direct calls name the functions.
fn callers_without_frames(
    space: &ProcessSpace,
    memory: &dyn Memory,
    frame: &SavedFrame,
    last: &GoFunction<'_>,
) -> Vec<u64> {
    let mut found = Vec::new();
    let (mut called_from, mut slot) = (frame.return_address, frame.cfa.wrapping_sub(16));
    for depth in 0..2 {
        let Some(function) = call_target(space, called_from) else {
            break;
        };
        if function.range.start == last.range.start {
            break;
        }
        let sizes = function
            .frame_sizes()
            .map(|(_, size)| u64::try_from(size).unwrap_or(0));
        let size = if depth == 0 {
            sizes.max().unwrap_or(0)
        } else {
            8
        };
        slot = slot.wrapping_sub(size);
        let is_in_it = |address: &u64| {
            let found = go_function(space, CodeAddr::Return(RuntimeAddr(*address)));
            found.is_some_and(|found| found.range == function.range)
        };
        let Some(address) = word(memory, slot).filter(is_in_it) else {
            break;
        };
        found.insert(0, address);
        called_from = address;
    }
    found
}

/// The Go function that the direct call before a return address calls.
fn call_target(space: &ProcessSpace, return_address: u64) -> Option<GoFunction<'_>> {
    let call = RuntimeAddr(return_address.checked_sub(CALL_BYTES)?);
    let code = space.code_in_file(call, 5)?;
    let [0xe8, offset @ ..] = code.first_chunk::<5>()? else {
        return None;
    };
    let offset = i64::from(i32::from_le_bytes(*offset));
    let start = RuntimeAddr(return_address.wrapping_add_signed(offset));
    go_function(space, CodeAddr::Instruction(start))
}

/// The Go function at an address.
fn go_function(space: &ProcessSpace, code: CodeAddr) -> Option<GoFunction<'_>> {
    let (file, addr) = space.locate(code.lookup())?;
    GoFunctions::new(file.tables.file())?.covering(addr)
}

fn spliced(address: u64) -> RawFrame {
    RawFrame {
        code: CodeAddr::Return(RuntimeAddr(address)),
        evidence: FrameEvidence::Spliced,
        arguments: None,
    }
}

fn word(memory: &dyn Memory, addr: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    memory.read(RuntimeAddr(addr), &mut bytes).ok()?;
    Some(u64::from_le_bytes(bytes))
}

/// The memory of a sample, and where it has none, of the thread as it is now.
struct ThreadMemory<'m> {
    copy: &'m StackCopy<'m>,
    tid: u32,
    blocks: RefCell<&'m mut Vec<Block>>,
}

impl ThreadMemory<'_> {
    /// A byte range within a block.
    fn read_block(&self, addr: u64, into: &mut [u8]) -> Option<()> {
        let mut blocks = self.blocks.borrow_mut();
        let (start, at) = (addr - addr % BLOCK_BYTES as u64, addr % BLOCK_BYTES as u64);
        let known = blocks.iter().rposition(|(known, _)| *known == start);
        let index = match known {
            Some(index) => index,
            None if blocks.len() < MAX_BLOCKS => {
                let mut bytes = Box::new([0; BLOCK_BYTES]);
                let read = read_memory(self.tid, RuntimeAddr(start), &mut *bytes).ok()?;
                (read == BLOCK_BYTES).then(|| blocks.push((start, bytes)))?;
                blocks.len() - 1
            }
            None => return None,
        };
        let (_, bytes) = blocks.get(index)?;
        let at = usize::try_from(at).ok()?;
        into.copy_from_slice(bytes.get(at..at.checked_add(into.len())?)?);
        Some(())
    }
}

impl Memory for ThreadMemory<'_> {
    fn read(&self, addr: RuntimeAddr, into: &mut [u8]) -> Result<(), Unreadable> {
        let Err(unreadable) = self.copy.read(addr, into) else {
            return Ok(());
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
