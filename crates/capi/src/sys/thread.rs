//! The memory of the own process, as a thread may read it.
//!
//! Async-signal-safe: no lock, no allocation, and no system call for the thread's stack.

use core::arch::{asm, global_asm};

use unspool_ir::{Memory, RuntimeAddr, Unreadable};
use unspool_unwind::local::OwnMemory;

/// The own memory: the stack of the calling thread, which is known to be there, and all else,
/// where the kernel is asked.
#[derive(Debug)]
pub(crate) struct ThreadMemory {
    /// The stack pointer of a function that has not returned.
    low: u64,
    /// Where what is known ends.
    end: u64,
    other: OwnMemory,
}

// Weak: only glibc has it.
global_asm!(".weak __libc_stack_end");

impl ThreadMemory {
    /// A longer stack is asked for like other memory. The kernel leaves at least so much below
    /// the main thread's for nobody else, in bytes.
    const LONGEST: u64 = 128 << 20;

    /// Of the function that asks.
    #[inline(always)]
    pub(crate) fn here() -> Self {
        let low = stack_pointer();
        let above = |end: u64| end.checked_sub(low).is_some_and(|len| len <= Self::LONGEST);
        // C libraries put the control block of a thread at the end of its stack; the main thread's
        // is elsewhere.
        let end = [control_block(), main_stack_end()];
        ThreadMemory {
            low,
            end: end.into_iter().find(|end| above(*end)).unwrap_or(low),
            other: OwnMemory::unknown(),
        }
    }

    /// The word at an address, if it is on the stack.
    #[inline(always)]
    fn on_stack(&self, addr: u64) -> Option<u64> {
        let is_inside = self.low <= addr && addr.checked_add(8)? <= self.end;
        // SAFETY: eight bytes between the stack pointer of a function that has not returned and
        // the end of the same stack.
        is_inside.then(|| unsafe { load(addr) })
    }
}

impl Memory for ThreadMemory {
    fn read(&self, addr: RuntimeAddr, into: &mut [u8]) -> Result<(), Unreadable> {
        if let Ok(word) = <&mut [u8; 8]>::try_from(&mut *into)
            && let Some(found) = self.on_stack(addr.0)
        {
            *word = found.to_le_bytes();
            return Ok(());
        }
        self.other.read(addr, into)
    }

    #[inline]
    fn near(&self, end: RuntimeAddr) -> Option<[u8; 8]> {
        self.on_stack(end.0.checked_sub(8)?).map(u64::to_le_bytes)
    }
}

/// # Safety
///
/// Eight bytes at the address are mapped and readable.
#[inline(always)]
unsafe fn load(addr: u64) -> u64 {
    let word;
    // SAFETY: a load of readable memory, of no Rust value.
    unsafe {
        asm!(
            "mov {word}, qword ptr [{addr}]",
            word = out(reg) word,
            addr = in(reg) addr,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    word
}

#[inline(always)]
fn stack_pointer() -> u64 {
    let value;
    // SAFETY: copies a register.
    unsafe {
        asm!("mov {}, rsp", out(reg) value, options(nomem, nostack, preserves_flags));
    }
    value
}

/// The address of the thread's control block, which begins with it (psABI, "Thread-Local Storage").
#[inline(always)]
fn control_block() -> u64 {
    let value;
    // SAFETY: every thread has one.
    unsafe {
        asm!("mov {}, qword ptr fs:[0]", out(reg) value, options(pure, readonly, nostack, preserves_flags));
    }
    value
}

/// Where the stack of the main thread ends, or zero.
#[inline(always)]
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
