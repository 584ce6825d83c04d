//! Guesses, where no table covers an address.
//!
//! They are made in the order of their trustworthiness and each is checked. A signal trampoline is
//! known by its bytes; what it interrupted may be anywhere, and on another stack. What any other
//! guess finds must be code, and its CFA must not be below the stack pointer.

use unspool_ir::{Arch, CodeAddr, Memory, Registers, RuntimeAddr};

use crate::cursor::Cursor;
use crate::evidence::Evidence;
use crate::modules::Modules;

mod aarch64;
mod x86_64;

/// A caller that was guessed.
pub(crate) struct Guess {
    pub(crate) evidence: Evidence,
    pub(crate) cfa: RuntimeAddr,
    pub(crate) code: CodeAddr,
    pub(crate) registers: Registers,
}

/// Guesses the caller of a frame.
pub(crate) fn guess<S, M>(cursor: &Cursor, modules: &S, memory: &M) -> Option<Guess>
where
    S: Modules + ?Sized,
    M: Memory + ?Sized,
{
    let guess = match cursor.abi().arch {
        Arch::X86_64 => x86_64::guess(cursor, modules, memory)?,
        Arch::Aarch64 => aarch64::guess(cursor, modules, memory)?,
        _ => return None,
    };
    // What a signal interrupted may have been a jump to where no code is.
    let is_plausible =
        guess.evidence == Evidence::SignalTrampoline || modules.is_code(guess.code.lookup());
    is_plausible.then_some(guess)
}
