//! Guesses, where no table covers an address.
//!
//! They are made in the order of their trustworthiness and each is checked. A signal trampoline is
//! known by its bytes; what it interrupted may be anywhere, and on another stack. What any other
//! guess finds must be code, and its CFA must not be below the stack pointer.

use unspool_ir::memory::{UnreadableReason, read_uint};
use unspool_ir::{
    Arch, CodeAddr, Expression, Memory, Register, Registers, RuntimeAddr, Unreadable, leb128,
};

use crate::cursor::Cursor;
use crate::evidence::Evidence;
use crate::modules::Modules;

mod aarch64;
pub(crate) mod x86_64;

/// A caller that was guessed.
pub(crate) struct Guess {
    pub(crate) evidence: Evidence,
    pub(crate) cfa: RuntimeAddr,
    pub(crate) code: CodeAddr,
    /// Where that was read, if it was in memory.
    pub(crate) code_at: Option<RuntimeAddr>,
    pub(crate) registers: Registers,
}

/// Why there is no guess.
pub(crate) enum NoGuess {
    /// Nothing that looks like a caller.
    Implausible,
    /// There may be one in memory that exists, but whose bytes nobody has.
    NotRecorded(Unreadable),
}

impl From<Unreadable> for NoGuess {
    fn from(unreadable: Unreadable) -> Self {
        match unreadable.why {
            UnreadableReason::NotRecorded | UnreadableReason::Truncated => {
                NoGuess::NotRecorded(unreadable)
            }
            _ => NoGuess::Implausible,
        }
    }
}

impl NoGuess {
    /// Tries the next way, but not where one that comes before it might have led on.
    fn or(self, next: impl FnOnce() -> Result<Guess, NoGuess>) -> Result<Guess, NoGuess> {
        match self {
            NoGuess::Implausible => next(),
            NoGuess::NotRecorded(_) => Err(self),
        }
    }
}

/// Guesses the caller of a frame.
pub(crate) fn guess<S, M>(cursor: &Cursor, modules: &S, memory: &M) -> Result<Guess, NoGuess>
where
    S: Modules + ?Sized,
    M: Memory + ?Sized,
{
    let guess = match cursor.abi().arch {
        Arch::X86_64 => x86_64::guess(cursor, modules, memory)?,
        Arch::Aarch64 => aarch64::guess(cursor, modules, memory)?,
        _ => return Err(NoGuess::Implausible),
    };
    // What a signal interrupted may have been a jump to where no code is.
    if guess.evidence == Evidence::SignalTrampoline || modules.is_code(guess.code.lookup()) {
        Ok(guess)
    } else {
        Err(NoGuess::Implausible)
    }
}

/// The caller of a frame whose code is a signal handler's trampoline by its bytes.
pub(crate) fn trampoline<M>(cursor: &Cursor, memory: &M) -> Result<Guess, NoGuess>
where
    M: Memory + ?Sized,
{
    match cursor.abi().arch {
        Arch::X86_64 => x86_64::trampoline(cursor, memory),
        _ => Err(NoGuess::Implausible),
    }
}

/// Whether code begins as a signal handler's trampoline does.
pub(crate) fn begins_trampoline(arch: Arch, code: &[u8]) -> bool {
    match arch {
        Arch::X86_64 => code.starts_with(&x86_64::TRAMPOLINE),
        _ => false,
    }
}

/// The register that a function keeps its frame pointer in, if it keeps one; `None` for an architecture
/// whose stacks are not walked.
#[must_use]
pub fn frame_pointer(arch: Arch) -> Option<Register> {
    match arch {
        Arch::X86_64 => Some(x86_64::RBP),
        Arch::Aarch64 => Some(aarch64::FP),
        _ => None,
    }
}

/// The distance from a register that an expression begins with, and its other bytes.
pub(crate) fn beside(
    register: Register,
    Expression(bytes): Expression<'_>,
) -> Option<(i64, &[u8])> {
    /// `DW_OP_breg0`: the register and a number.
    const BREG0: u16 = 0x70;
    let (operation, mut rest) = bytes.split_first()?;
    if u16::from(*operation) != BREG0 + register.0 {
        return None;
    }
    let distance = leb128::signed(&mut rest)?;
    Some((distance, rest))
}

/// The caller by the frame pointer, if it can be one: it leads to the caller's frame pointer, the
/// return address, and the end of the frame.
fn frame_record<M>(cursor: &Cursor, frame_pointer: Register, memory: &M) -> Result<Guess, NoGuess>
where
    M: Memory + ?Sized,
{
    let [at, above, cfa] = frame_words(cursor, frame_pointer).ok_or(NoGuess::Implausible)?;
    let abi = cursor.abi();
    let spec = abi.arch.spec();
    let word = |addr| read_uint(memory, addr, 8, abi.endian);
    let caller_frame = word(at)?;
    let return_address = word(above)?;
    let mut registers = Registers::new();
    registers.set(frame_pointer, caller_frame);
    registers.set(spec.stack_pointer, cfa.0);
    registers.set(spec.pc, return_address);
    Ok(Guess {
        evidence: Evidence::FramePointer,
        cfa,
        code: CodeAddr::Return(RuntimeAddr(return_address)),
        code_at: Some(above),
        registers,
    })
}

/// The places of the two words, and the end of the frame.
fn frame_words(cursor: &Cursor, frame_pointer: Register) -> Option<[RuntimeAddr; 3]> {
    let at = cursor.registers().get(frame_pointer)?;
    if at % 8 != 0 || at < cursor.stack_pointer()?.0 {
        return None;
    }
    let above = |bytes| at.checked_add(bytes).map(RuntimeAddr);
    Some([above(0)?, above(8)?, above(16)?])
}
