//! How much of the calling thread's stack is known to be there: asked of the kernel once in the
//! life of the thread.
//!
//! A stack pointer alone does not say that what lies between it and the end of the thread's stack
//! can be read: that of a coroutine, or of a signal handler with a stack of its own, may be
//! below the thread's stack in memory, with a hole between the two. So the pages down from
//! the end of the stack are asked for, as far as walks need them, and what was found is kept in
//! thread-local memory: from `low` to `end` all can be read. A thread's own stack stays where it is
//! as long as the thread runs.
//!
//! What is assumed: no memory that comes and goes borders on the lower end of a thread's stack with
//! neither a guard page nor anything else unreadable between them.
//!
//! Async-signal-safe. A signal handler may do the same while this is under way: each word says
//! something true by itself.

use core::arch::{asm, global_asm};
use core::ffi::c_void;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use unspool_rows::RuntimeAddr;

use super::{ReadablePages, is_readable, load_below, stack_pointer};

/// Memory that can be read: of the own stack, or a page that the kernel was asked for. For the thread
/// that asked, as long as its walk takes.
#[derive(Debug, Clone, Copy)]
pub struct ReadableMemory {
    /// The end of the first word.
    first: u64,
    /// How many addresses from there on are the ends of words.
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

    /// What is known of this thread's stack. Asks nobody.
    #[must_use]
    pub fn stack() -> ReadableMemory {
        let stack = thread_stack();
        ReadableMemory::between(stack.low.load(Relaxed), stack.end.load(Relaxed))
    }

    /// The stack above something that lies on it, without asking whether it can be read.
    ///
    /// # Safety
    ///
    /// `from` lies on the stack that this thread runs on. Words are read of frames only whose functions have not
    /// returned: where that stack is a coroutine's, this is more than it.
    #[must_use]
    pub unsafe fn trusted(from: *const c_void) -> ReadableMemory {
        let start = from.addr() as u64;
        let ends = [main_stack_end(), control_block()];
        let above = ends.into_iter().filter(|end| *end > start);
        let end = above.fold(start.saturating_add(MAX_STACK_BYTES), u64::min);
        ReadableMemory::between(start, end)
    }

    /// What is known of this thread's stack, once the kernel was asked for it down to its stack
    /// pointer.
    #[inline]
    pub(super) fn above(stack_pointer: u64) -> ReadableMemory {
        let known = ReadableMemory::stack();
        match known.end_around(stack_pointer) {
            Some(_) => known,
            None => ask(stack_pointer),
        }
    }

    /// What can be read around an address: of this thread's stack, or else the page. Asks the kernel
    /// for what is not known.
    #[must_use]
    pub fn around(addr: RuntimeAddr) -> ReadableMemory {
        let stack = ReadableMemory::above(stack_pointer());
        if stack.end_around(addr.0).is_some() {
            return stack;
        }
        let page = addr.0 & !(ReadablePages::SIZE - 1);
        match is_readable(addr.0) {
            true => ReadableMemory::between(page, page.saturating_add(ReadablePages::SIZE)),
            false => ReadableMemory::NOTHING,
        }
    }

    /// The word at an address.
    #[inline(always)]
    #[must_use]
    pub fn word(self, addr: RuntimeAddr) -> Option<u64> {
        let end = addr.0.wrapping_add(8);
        // SAFETY: the eight bytes below are within memory that can be read.
        (end.wrapping_sub(self.first) < self.count).then(|| unsafe { load_below(end) })
    }

    /// The end of this memory, if a word at the address is in it.
    #[inline]
    pub(super) fn end_around(self, addr: u64) -> Option<u64> {
        let is_inside = addr.wrapping_add(8).wrapping_sub(self.first) < self.count;
        is_inside.then(|| self.first.wrapping_add(self.count).wrapping_sub(1))
    }
}

/// What a thread knows. All zero where it knows nothing.
#[repr(C)]
struct StackBounds {
    /// All pages from here to `end` could be read.
    low: AtomicU64,
    /// The end of the thread's stack, or zero.
    end: AtomicU64,
    /// The page below this address cannot be read: other stacks are further down.
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

/// A longer stack is asked for like other memory. The kernel leaves at least so much below
/// the main thread's for nobody else, in bytes.
const MAX_STACK_BYTES: u64 = 128 << 20;

/// Where the stack of this thread ends: C libraries put its control block there, except for the
/// main thread, whose stack is the kernel's.
fn end_of_stack(stack_pointer: u64) -> u64 {
    let main = main_stack_end();
    let is_on_main = stack_pointer < main && main - stack_pointer <= MAX_STACK_BYTES;
    match is_on_main || is_main_thread() {
        true => main,
        false => control_block(),
    }
}

fn is_main_thread() -> bool {
    // SAFETY: takes nothing, cannot fail.
    let process = unsafe { libc::getpid() };
    // SAFETY: as above.
    let thread = unsafe { libc::syscall(libc::SYS_gettid) };
    thread == i64::from(process)
}

// Rust has no thread-local variables without its standard library. The model is the one that takes no
// call, "initial exec": a library that is opened later takes its 24 bytes of what the loader has left
// over. Hidden: each library that this is linked into has its own.
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
    // SAFETY: computes an address from the thread pointer and an offset that the loader has put into
    // the global offset table (initial exec).
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

/// The address of the thread's control block, which begins with it (psABI, "Thread-Local Storage").
fn control_block() -> u64 {
    let value;
    // SAFETY: every thread has one.
    unsafe {
        asm!("mov {}, qword ptr fs:[0]", out(reg) value, options(pure, readonly, nostack, preserves_flags));
    }
    value
}

/// Where the stack of the main thread ends, or zero.
fn main_stack_end() -> u64 {
    let value: u64;
    // SAFETY: reads an entry of the own global offset table, which the loader has filled, and if it is
    // not null the word that it leads to, which the loader has.
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
