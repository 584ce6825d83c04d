//! The readable part of the calling thread's stack: the kernel is asked once in the life of the
//! thread.
//!
//! A stack pointer alone does not show that everything from it to the end of the thread's stack is
//! readable. The stack of a coroutine, or of a signal handler with its own stack, may be below the
//! thread's stack in memory, with a hole between the two. So the pages down from the end of the
//! stack are checked, as walks need them. The result is kept in thread-local memory: everything
//! from `low` to `end` is readable. A thread's own stack stays in place as long as the thread runs.
//!
//! Assumption: between the lower end of a thread's stack and any memory that can be unmapped there
//! is a guard page, or something else unreadable.
//!
//! Async-signal-safe. A signal handler may do the same meanwhile: each word is valid by itself.

use core::arch::{asm, global_asm};
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use unspool_rows::RuntimeAddr;

use super::{ReadablePages, is_readable, load_below, stack_pointer};

/// Readable memory: of the own stack, or a page that the kernel was asked about. Valid for the
/// calling thread, during its walk.
#[derive(Debug, Clone, Copy)]
pub struct ReadableMemory {
    /// The end of the first word.
    first: u64,
    /// The number of addresses from there on that are ends of words.
    count: u64,
    thread: PhantomData<*const ()>,
}

impl ReadableMemory {
    /// No memory.
    pub const NOTHING: ReadableMemory = ReadableMemory::between(0, 0);

    const fn between(start: u64, end: u64) -> ReadableMemory {
        ReadableMemory {
            first: start.wrapping_add(8),
            count: end.saturating_sub(start).saturating_sub(7),
            thread: PhantomData,
        }
    }

    /// The known part of this thread's stack, without asking the kernel.
    #[must_use]
    pub fn stack() -> ReadableMemory {
        let stack = thread_stack();
        ReadableMemory::between(stack.low.load(Relaxed), stack.end.load(Relaxed))
    }

    /// The known part of this thread's stack, after asking the kernel down to its stack pointer.
    #[inline]
    pub(super) fn above(stack_pointer: u64) -> ReadableMemory {
        let known = ReadableMemory::stack();
        match known.end_around(stack_pointer) {
            Some(_) => known,
            None => ask(stack_pointer),
        }
    }

    /// The readable memory around an address: this thread's stack, or else the page. Asks the
    /// kernel about unknown parts.
    #[must_use]
    pub fn around(addr: RuntimeAddr) -> ReadableMemory {
        let stack = ReadableMemory::above(stack_pointer());
        if stack.end_around(addr.0).is_some() {
            return stack;
        }
        let page = addr.0 & !(ReadablePages::SIZE - 1);
        if is_readable(addr.0) {
            ReadableMemory::between(page, page.saturating_add(ReadablePages::SIZE))
        } else {
            ReadableMemory::NOTHING
        }
    }

    /// The word at an address.
    #[inline(always)]
    #[must_use]
    pub fn word(self, addr: RuntimeAddr) -> Option<u64> {
        let end = addr.0.wrapping_add(8);
        // SAFETY: the eight bytes below are within readable memory.
        (end.wrapping_sub(self.first) < self.count).then(|| unsafe { load_below(end) })
    }

    /// Its blocks of words.
    #[inline(always)]
    #[must_use]
    pub fn blocks(self) -> ReadableBlocks {
        let others = 8 * u64::from(WordBlock::WORDS - 1);
        ReadableBlocks {
            first: self.first.wrapping_add(others),
            count: self.count.saturating_sub(others),
            thread: PhantomData,
        }
    }

    /// The end of this memory, if a word at the address is in it.
    #[inline]
    pub(super) fn end_around(self, addr: u64) -> Option<u64> {
        let is_inside = addr.wrapping_add(8).wrapping_sub(self.first) < self.count;
        is_inside.then(|| self.first.wrapping_add(self.count).wrapping_sub(1))
    }
}

/// Blocks of [`WordBlock::WORDS`] words in readable memory.
#[derive(Debug, Clone, Copy)]
pub struct ReadableBlocks {
    /// The end of the first block.
    first: u64,
    /// The number of addresses from there on that are ends of blocks.
    count: u64,
    thread: PhantomData<*const ()>,
}

impl ReadableBlocks {
    /// The words below an address.
    #[inline(always)]
    #[must_use]
    pub fn ending_at(self, end: u64) -> Option<WordBlock> {
        let thread = PhantomData;
        (end.wrapping_sub(self.first) < self.count).then_some(WordBlock { end, thread })
    }
}

/// The readable words below an address: as many as a packed row reaches.
#[derive(Debug, Clone, Copy)]
pub struct WordBlock {
    end: u64,
    thread: PhantomData<*const ()>,
}

impl WordBlock {
    /// The number of words.
    pub const WORDS: u32 = 31;

    /// The word this many words below the address, from 1 on.
    #[inline(always)]
    #[must_use]
    pub fn word(self, below: u32) -> Option<u64> {
        let index = WordBlock::WORDS.checked_sub(below)?;
        // SAFETY: it is one of the words of the block, which are readable.
        (below != 0).then(|| unsafe { load_in_block(self.end, index.into()) })
    }
}

/// Reads a word of the block that ends at an address, as [`load_below`].
///
/// # Safety
///
/// The block is mapped and readable, and `index` is below [`WordBlock::WORDS`].
#[inline(always)]
unsafe fn load_in_block(end: u64, index: u64) -> u64 {
    let value;
    // SAFETY: as in `load_below`.
    unsafe {
        asm!(
            "mov {value}, qword ptr [{end} + 8 * {index} - 8 * {words}]",
            value = out(reg) value,
            end = in(reg) end,
            index = in(reg) index,
            words = const WordBlock::WORDS,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    value
}

/// A walk's trust in its stacks: words of frames are read as returning functions read them, without
/// asking whether they can be.
#[derive(Debug, Clone, Copy)]
pub struct StackTrust(PhantomData<*const ()>);

impl StackTrust {
    /// # Safety
    ///
    /// The stack is that of functions that have not returned, and so are those that signal handlers
    /// on it have interrupted. Only words of their frames are read: if a stack is a coroutine's,
    /// [`StackTrust::memory_from`] extends past it.
    #[inline(always)]
    #[must_use]
    pub unsafe fn new() -> StackTrust {
        StackTrust(PhantomData)
    }

    /// The stack from the frame on that this is inlined into.
    #[inline(always)]
    #[must_use]
    pub fn own_memory(self) -> ReadableMemory {
        self.memory_above(stack_pointer())
    }

    /// The stack from a frame with this stack pointer on.
    #[inline]
    #[must_use]
    pub fn memory_from(self, stack_pointer: u64) -> ReadableMemory {
        self.memory_above(stack_pointer.saturating_sub(RED_ZONE))
    }

    #[inline(always)]
    fn memory_above(self, start: u64) -> ReadableMemory {
        let ends = [main_stack_end(), control_block()];
        let above = ends.into_iter().filter(|end| *end > start);
        let end = above.fold(start.saturating_add(MAX_STACK_BYTES), u64::min);
        ReadableMemory::between(start, end)
    }
}

/// The bytes below the stack pointer that a function may use (psABI, "The Stack Frame").
const RED_ZONE: u64 = 128;

/// A thread's knowledge of its stack. All zero if nothing is known.
#[repr(C)]
struct StackBounds {
    /// All pages from here to `end` were readable.
    low: AtomicU64,
    /// The end of the thread's stack, or zero.
    end: AtomicU64,
    /// The page below this address is unreadable: other stacks are further down.
    limit: AtomicU64,
}

// Weak: only glibc has it.
global_asm!(".weak __libc_stack_end");

#[cold]
fn ask(stack_pointer: u64) -> ReadableMemory {
    let stack = thread_stack();
    if stack.end.load(Relaxed) == 0 {
        let end = end_of_stack(stack_pointer);
        stack.low.store(end, Relaxed);
        stack.end.store(end, Relaxed);
    }
    let end = stack.end.load(Relaxed);
    let is_near = stack_pointer < end && end - stack_pointer <= MAX_STACK_BYTES;
    if is_near && stack_pointer >= stack.limit.load(Relaxed) {
        stack.extend_to(stack_pointer & !(ReadablePages::SIZE - 1));
    }
    ReadableMemory::stack()
}

impl StackBounds {
    fn extend_to(&self, page: u64) {
        loop {
            let low = self.low.load(Relaxed);
            if low <= page {
                return;
            }
            let below = (low - 1) & !(ReadablePages::SIZE - 1);
            if !is_readable(below) {
                self.limit.store(low, Relaxed);
                return;
            }
            self.low.store(below, Relaxed);
        }
    }
}

/// Memory of a longer stack is checked like any other. The kernel keeps at least this much free
/// below the main thread's stack, in bytes.
const MAX_STACK_BYTES: u64 = 128 << 20;

/// The end of this thread's stack: C libraries put its control block there, except for the main
/// thread, which has the kernel's stack.
fn end_of_stack(stack_pointer: u64) -> u64 {
    let main = main_stack_end();
    let is_on_main = stack_pointer < main && main - stack_pointer <= MAX_STACK_BYTES;
    if is_on_main || is_main_thread() {
        main
    } else {
        control_block()
    }
}

fn is_main_thread() -> bool {
    // SAFETY: takes nothing, cannot fail.
    let process = unsafe { libc::getpid() };
    // SAFETY: as above.
    let thread = unsafe { libc::syscall(libc::SYS_gettid) };
    thread == i64::from(process)
}

// Rust has no thread-local variables without its standard library. The model is "initial exec",
// which takes no call: a library that is opened later takes its 24 bytes from the loader's reserve.
// Hidden: each library that this is linked into has its own.
global_asm!(
    ".pushsection .tbss.unspool_unwind_known_stack, \"awT\", @nobits",
    ".p2align 3",
    ".globl unspool_unwind_known_stack",
    ".hidden unspool_unwind_known_stack",
    ".type unspool_unwind_known_stack, @object",
    ".size unspool_unwind_known_stack, 24",
    "unspool_unwind_known_stack:",
    ".zero 24",
    ".popsection",
);

#[inline]
fn thread_stack() -> &'static StackBounds {
    let address: *const StackBounds;
    // SAFETY: computes an address from the thread pointer and an offset that the loader has put
    // into the global offset table (initial exec).
    unsafe {
        asm!(
            "mov {address}, qword ptr [rip + unspool_unwind_known_stack@gottpoff]",
            "add {address}, qword ptr fs:[0]",
            address = out(reg) address,
            options(pure, readonly, nostack),
        );
    }
    // SAFETY: the thread's own, zero at first, which is a value of this type; callers neither keep
    // the reference nor pass it on.
    unsafe { &*address }
}

/// The address of the thread's control block, which begins with that address (psABI, "Thread-Local
/// Storage").
pub(super) fn control_block() -> u64 {
    let value;
    // SAFETY: every thread has one.
    unsafe {
        asm!("mov {}, qword ptr fs:[0]", out(reg) value, options(pure, readonly, nostack, preserves_flags));
    }
    value
}

/// The end of the main thread's stack, or zero.
fn main_stack_end() -> u64 {
    let value: u64;
    // SAFETY: reads an entry of the own global offset table, which the loader has filled, and, if
    // it is not null, the loader's word that it points to.
    unsafe {
        asm!(
            "mov {value}, qword ptr [rip + __libc_stack_end@GOTPCREL]",
            "test {value}, {value}",
            "jz 2f",
            "mov {value}, qword ptr [{value}]",
            "2:",
            value = out(reg) value,
            options(pure, readonly, nostack),
        );
    }
    value
}
