//! Guesses, for addresses that no table covers.
//!
//! They are tried in the order of their trustworthiness and each is checked. A signal trampoline is
//! known by its bytes; the interrupted frame may be anywhere, even on another stack. Any other
//! guessed caller must be code, with a CFA that is not below the stack pointer.

use unspool_rows::memory::{UnreadableReason, read_uint};
use unspool_rows::{Arch, CodeAddr, Memory, Register, Registers, RuntimeAddr, Unreadable};

use crate::evidence::{End, Evidence, NoRow};
use crate::frame::FrameState;
use crate::modules::Modules;

mod aarch64;
mod x86_64;

/// A guessed caller.
pub(crate) struct Guess {
    pub(crate) evidence: Evidence,
    pub(crate) cfa: RuntimeAddr,
    pub(crate) code: CodeAddr,
    /// The address where `code` was read, if in memory.
    pub(crate) code_at: Option<RuntimeAddr>,
    pub(crate) registers: Registers,
}

/// Why there is no guess.
pub(crate) enum NoGuess {
    /// Nothing looks like a caller.
    Implausible,
    /// There may be one in memory that exists, but was not recorded or copied.
    NotRecorded(Unreadable),
}

impl From<Unreadable> for NoGuess {
    fn from(unreadable: Unreadable) -> Self {
        match unreadable.reason {
            UnreadableReason::NotRecorded | UnreadableReason::Truncated => {
                NoGuess::NotRecorded(unreadable)
            }
            _ => NoGuess::Implausible,
        }
    }
}

impl NoGuess {
    /// Tries the next method, but not if an earlier one failed only for missing memory.
    fn or(self, next: impl FnOnce() -> Result<Guess, NoGuess>) -> Result<Guess, NoGuess> {
        match self {
            NoGuess::Implausible => next(),
            NoGuess::NotRecorded(_) => Err(self),
        }
    }

    /// The end of a walk without a guess; `missing` is why the tables have no row.
    pub(crate) fn end(self, missing: NoRow) -> End {
        match self {
            NoGuess::Implausible => End::NoRow(missing),
            NoGuess::NotRecorded(unreadable) => End::Guess {
                missing,
                unreadable,
            },
        }
    }
}

/// Guesses the caller of a frame.
pub(crate) fn guess(
    frame: &FrameState,
    modules: &(impl Modules + ?Sized),
    memory: &(impl Memory + ?Sized),
) -> Result<Guess, NoGuess> {
    let guess = match frame.abi.arch {
        Arch::X86_64 => x86_64::guess(frame, modules, memory)?,
        Arch::Aarch64 => aarch64::guess(frame, modules, memory)?,
        _ => return Err(NoGuess::Implausible),
    };
    // A signal may have interrupted a jump to an address without code.
    if guess.evidence == Evidence::SignalTrampoline || modules.is_code(guess.code.lookup()) {
        Ok(guess)
    } else {
        Err(NoGuess::Implausible)
    }
}

/// Whether memory has this code at an address.
fn holds(memory: &(impl Memory + ?Sized), addr: RuntimeAddr, code: &[u8]) -> bool {
    let mut bytes = [0; 16];
    let bytes = bytes.get_mut(..code.len()).unwrap_or_default();
    memory.read(addr, bytes).is_ok() && bytes == code
}

/// The caller of a frame with a signal handler's trampoline as code, by its bytes.
///
/// A handler returns to a trampoline that calls `rt_sigreturn`. glibc's has CFI, but musl's, Go's
/// and those of AArch64's vDSO have none, and a thread inside that call has the address after it.
/// The kernel's `ucontext` is then at or above the stack pointer.
pub(crate) fn trampoline(
    frame: &FrameState,
    memory: &(impl Memory + ?Sized),
) -> Result<Guess, NoGuess> {
    let spec = frame.abi.arch.spec();
    let record = spec.signal_record.ok_or(NoGuess::Implausible)?;
    let holds = |addr, code: &[u8]| holds(memory, addr, code);
    let address = frame.code.address();
    // A handler's return address is the trampoline's first instruction, which does not follow a
    // call. A thread that is stopped or sampled in the kernel has the address after the system
    // call.
    let is_after = |code: &[u8]| {
        let start = RuntimeAddr(address.0.wrapping_sub(code.len() as u64));
        matches!(frame.code, CodeAddr::Instruction(_)) && holds(start, code)
    };
    let mut trampolines = record.trampolines.iter();
    let is_there = |_: &_| trampolines.any(|code| holds(address, code) || is_after(code));
    let stack_pointer = frame.stack_pointer().filter(is_there);
    let context = record.at(stack_pointer.ok_or(NoGuess::Implausible)?.0);
    let mut registers = Registers::new();
    // The handler has preserved those that the record does not have.
    for register in spec.preserved.iter().copied().map(Register) {
        if let Some(value) = frame.registers.get(register) {
            registers.set(register, value);
        }
    }
    for (number, offset) in (0..).zip(record.offsets) {
        let at = RuntimeAddr(context.wrapping_add(*offset));
        registers.set(
            Register(number),
            read_uint(memory, at, 8, frame.abi.endian)?,
        );
    }
    let known = |register| registers.get(register).map(RuntimeAddr);
    let (Some(cfa), Some(pc)) = (known(spec.stack_pointer), known(spec.pc)) else {
        return Err(NoGuess::Implausible);
    };
    Ok(Guess {
        evidence: Evidence::SignalTrampoline,
        cfa,
        code: CodeAddr::Instruction(pc),
        code_at: record.address(context, spec.pc).map(RuntimeAddr),
        registers,
    })
}

/// The caller by the frame pointer, if plausible: it leads to the caller's frame pointer, the
/// return address, and the end of the frame.
fn frame_record(
    frame: &FrameState,
    frame_pointer: Register,
    memory: &(impl Memory + ?Sized),
) -> Result<Guess, NoGuess> {
    let [at, above, cfa] = frame_words(frame, frame_pointer).ok_or(NoGuess::Implausible)?;
    let abi = frame.abi;
    let spec = abi.arch.spec();
    let word = |addr| read_uint(memory, addr, 8, abi.endian);
    let caller_frame = word(at)?;
    let return_address = frame.without_pac(word(above)?);
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

/// The addresses of the two words, and the end of the frame.
fn frame_words(frame: &FrameState, frame_pointer: Register) -> Option<[RuntimeAddr; 3]> {
    let at = frame.registers.get(frame_pointer)?;
    if at % 8 != 0 || at < frame.stack_pointer()?.0 {
        return None;
    }
    let above = |bytes| at.checked_add(bytes).map(RuntimeAddr);
    Some([above(0)?, above(8)?, above(16)?])
}
