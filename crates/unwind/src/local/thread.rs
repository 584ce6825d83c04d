//! A thread's state for walks of its own stack, found by the thread itself.
//!
//! One word of thread-local storage points to it. In a signal handler that word must be read
//! without a call of `__tls_get_addr`, which may allocate. So its offset is fixed when the program
//! or library is loaded (the initial-exec model).
//!
//! **Signals.** Only the thread itself, and signal handlers that run in it, use its state. A
//! handler runs to its end before the interrupted code continues, so a walk has only these cases:
//!
//! - The word is null: [`prepare_thread`], which sets it last, has not finished. Or the word is 1:
//!   the thread's end sets that before it frees the memory. The walk works without the state.
//! - The word is set and the memo is marked as in use: a walk was interrupted. The memo may be half
//!   written. The handler's walk works without it, and with the stack's bounds, which do not
//!   change.
//! - The word is set and the memo is not in use: the interrupted code neither reads nor writes it.
//!   The handler's walk marks it, uses it, and has ended before other code can see the mark.
//!
//! A walk that reaches new code takes up to 20 KiB of stack: alternate stacks should have 32 KiB.
//!
//! A handler that never returns (`siglongjmp`) leaves the mark of the interrupted walk: from then
//! on the thread walks without a memo.

use core::ffi::c_int;
use core::ops::Range;

use unspool_rows::{CodeAddr, Register, RuntimeAddr};

use super::memory::OwnMemory;
use super::sys::CapturedRegisters;
use super::{ABI, MODULES, prepare, rules, stats};
use crate::walk::{InnermostFrame, Memo, WalkResult, Walker};

mod sys;

/// Why a thread could not be prepared: an error number of the C library. `ENOMEM`: there is no
/// memory. `ESRCH`: the thread is ending and has freed its state. `ENOSYS`: the C library is not
/// glibc.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no memory for a thread's data (error {0})")]
pub struct PrepareError(pub c_int);

/// Prepares this thread for fast walks, until it ends: the bounds of its stack, and a memo of the
/// last walk, 60 KiB. A second call does nothing.
///
/// Until a prepared thread ends, this library is not unloaded.
///
/// Not async-signal-safe: maps memory, asks the C library for the stack, and, for the first thread,
/// the loader for its objects.
///
/// # Errors
///
/// [`PrepareError`]; the thread walks without the state.
pub fn prepare_thread() -> Result<(), PrepareError> {
    prepare();
    sys::prepare_thread()?;
    // The first walk waits for its code and its memory, so it is done here.
    walk(&mut [RuntimeAddr(0); 64]);
    Ok(())
}

/// Walks the stack of this thread: the first address is this function's return address.
///
/// Async-signal-safe. Any thread may walk; one that was not [prepared](prepare_thread) asks the
/// kernel about each page of its stack.
#[inline(never)]
pub fn walk(addresses: &mut [RuntimeAddr]) -> WalkResult {
    let mut here = CapturedRegisters::EMPTY;
    here.fill();
    run(&here, &here, addresses)
}

/// Walks the stack of this thread from any of its frames: one that a signal interrupted
/// ([`SignalRegisters`]), or one with captured registers.
///
/// Async-signal-safe, as [`walk`]. In a handler on its own stack, the kernel is asked about each
/// page of the interrupted stack.
#[inline(never)]
pub fn walk_from(top: &impl InnermostFrame, addresses: &mut [RuntimeAddr]) -> WalkResult {
    let mut here = CapturedRegisters::EMPTY;
    here.fill();
    run(top, &here, addresses)
}

/// Calls `body` with the memory of this thread: the known part of its stack, and all else by asking
/// the kernel.
///
/// Async-signal-safe if `body` is.
#[inline(never)]
pub fn with_memory<R>(body: impl FnOnce(&OwnMemory) -> R) -> R {
    let mut here = CapturedRegisters::EMPTY;
    here.fill();
    let stack = sys::own().map_or(0..0, |own| own.stack.clone());
    body(&OwnMemory::new(&here, &stack))
}

/// Walks from a frame; `here` are the registers of a function that has not returned.
#[inline(always)]
fn run(
    top: &impl InnermostFrame,
    here: &CapturedRegisters,
    addresses: &mut [RuntimeAddr],
) -> WalkResult {
    stats::counted(|| run_uncounted(top, here, addresses))
}

#[inline(always)]
fn run_uncounted(
    top: &impl InnermostFrame,
    here: &CapturedRegisters,
    addresses: &mut [RuntimeAddr],
) -> WalkResult {
    let walker = Walker::new(ABI, rules::current());
    let Some(own) = sys::own() else {
        let memory = OwnMemory::new(here, &(0..0));
        return walker.walk(top, &MODULES, &memory, addresses);
    };
    let memory = OwnMemory::new(here, &own.stack);
    own.memo.with(|memo| match memo {
        Some(memo) => walker.walk_again(memo, top, &MODULES, &memory, addresses),
        None => walker.walk(top, &MODULES, &memory, addresses),
    })
}

/// A thread's state.
struct ThreadWalkState {
    stack: Range<u64>,
    memo: sys::ReentrantCell<Memo>,
}

/// The registers of an interrupted frame, by DWARF number: `rax` to `r15`, and `rip`.
#[derive(Debug, Clone, Copy)]
pub struct SignalRegisters(pub [u64; 17]);

impl SignalRegisters {
    /// Their indices in `uc_mcontext.gregs`.
    pub(crate) const IN_CONTEXT: [c_int; 17] = [
        libc::REG_RAX,
        libc::REG_RDX,
        libc::REG_RCX,
        libc::REG_RBX,
        libc::REG_RSI,
        libc::REG_RDI,
        libc::REG_RBP,
        libc::REG_RSP,
        libc::REG_R8,
        libc::REG_R9,
        libc::REG_R10,
        libc::REG_R11,
        libc::REG_R12,
        libc::REG_R13,
        libc::REG_R14,
        libc::REG_R15,
        libc::REG_RIP,
    ];

    fn get(&self, register: usize) -> u64 {
        self.0.get(register).copied().unwrap_or(0)
    }
}

/// The third argument of a signal handler (`SA_SIGINFO`).
impl From<&libc::ucontext_t> for SignalRegisters {
    fn from(context: &libc::ucontext_t) -> Self {
        let registers = &context.uc_mcontext.gregs;
        SignalRegisters(Self::IN_CONTEXT.map(|at| {
            let value = usize::try_from(at).ok().and_then(|at| registers.get(at));
            value.copied().unwrap_or(0).cast_unsigned()
        }))
    }
}

impl InnermostFrame for SignalRegisters {
    fn code(&self) -> CodeAddr {
        CodeAddr::Instruction(RuntimeAddr(self.get(16)))
    }

    fn stack_pointer(&self) -> u64 {
        self.get(7)
    }

    fn frame_pointer(&self) -> u64 {
        self.get(6)
    }

    fn others(&self) -> impl Iterator<Item = (Register, u64)> {
        (0..).map(Register).zip(self.0)
    }
}
