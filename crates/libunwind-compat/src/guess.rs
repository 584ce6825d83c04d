//! Guessed rows for frames at addresses that no entry covers.
//!
//! A guess is an ordinary row, and is applied like one. A guess from the code at an address is
//! valid for the address, and can be cached. A guess from registers and the stack is only valid for
//! the frame.

use unspool_rows::row::{CfaRule, RegisterRule, Row};
use unspool_rows::{Expression, Memory, Register, RuntimeAddr};

use crate::remote_cfi::ABI;

const RBP: Register = Register(6);
const RSP: Register = Register(7);
const RIP: Register = Register(16);

/// The known facts about the frame.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GuessInput {
    /// Its code address.
    pub(crate) ip: u64,
    /// It was interrupted, or is the innermost: it may have jumped outside of code.
    pub(crate) is_interrupted: bool,
    /// Its stack pointer.
    pub(crate) stack_pointer: u64,
    /// Its frame pointer, if that can be read.
    pub(crate) frame_pointer: Option<u64>,
}

/// The maximum distance of a plausible frame pointer above the stack pointer, in bytes: libunwind's
/// limit.
const MAX_FRAME_BYTES: u64 = 0x4000;

/// The row of a frame that no entry covers; `None` if it is assumed to be the outermost.
///
/// The most reliable guess comes first: by [`code`], then by [`frame`].
pub(crate) fn row<M: Memory>(memory: &M, input: &GuessInput) -> Option<Row<'static>> {
    code(memory, input.ip, input.is_interrupted).or_else(|| frame(memory, input))
}

/// The row of code recognised by its bytes: a signal handler's trampoline, or an entry of a
/// procedure linkage table. A frame interrupted in a trampoline's system call has the address
/// behind it.
pub(crate) fn code<M: Memory>(memory: &M, ip: u64, is_interrupted: bool) -> Option<Row<'static>> {
    let is_behind = || {
        let holds = |trampoline: &&[u8]| {
            let begin = ip.wrapping_sub(trampoline.len() as u64);
            bytes(memory, begin).is_some_and(|code| code.starts_with(trampoline))
        };
        is_interrupted && trampolines().iter().any(holds)
    };
    match bytes(memory, ip)? {
        code if is_trampoline(&code) || is_behind() => Some(trampoline()),
        code if is_plt_entry(&code) => Some(called()),
        _ => None,
    }
}

/// The row of a frame by its stack: for a call to an unreadable address, or with a frame pointer.
pub(crate) fn frame<M: Memory>(memory: &M, input: &GuessInput) -> Option<Row<'static>> {
    if bytes(memory, input.ip).is_none() && has_just_called(memory, input) {
        return Some(called());
    }
    let at = input.frame_pointer?;
    is_frame_pointer(memory, input, at).then(with_frame_pointer)
}

/// The code at an address.
fn bytes<M: Memory>(memory: &M, ip: u64) -> Option<[u8; 16]> {
    let mut code = [0; 16];
    let read = memory.read(RuntimeAddr(ip), &mut code);
    read.ok().map(|()| code)
}

/// The row of a signal handler's trampoline, if one begins at `ip`.
pub(crate) fn trampoline_at<M: Memory>(memory: &M, ip: u64) -> Option<Row<'static>> {
    bytes(memory, ip)
        .filter(is_trampoline)
        .map(|_| trampoline())
}

fn trampolines() -> &'static [&'static [u8]] {
    let record = ABI.arch.spec().signal_record;
    record.map_or(&[], |record| record.trampolines)
}

fn is_trampoline(code: &[u8; 16]) -> bool {
    ABI.arch.begins_trampoline(code)
}

/// Whether a trampoline may begin with these first bytes.
#[must_use]
pub(crate) fn begins_trampoline(bytes: &[u8]) -> bool {
    let mut trampolines = trampolines().iter();
    trampolines.any(|trampoline| trampoline.iter().zip(bytes).all(|(a, b)| a == b))
}

/// `jmp *slot(%rip); push $index; jmp first`.
fn is_plt_entry(code: &[u8; 16]) -> bool {
    matches!(code, [0xff, 0x25, _, _, _, _, 0x68, _, _, _, _, 0xe9, ..])
}

fn has_just_called<M: Memory>(memory: &M, input: &GuessInput) -> bool {
    let mut word = [0; 8];
    let top = memory.read(RuntimeAddr(input.stack_pointer), &mut word);
    let caller = u64::from_le_bytes(word);
    let code = &mut [0; 8];
    input.is_interrupted && top.is_ok() && memory.read(RuntimeAddr(caller & !7), code).is_ok()
}

fn is_frame_pointer<M: Memory>(memory: &M, input: &GuessInput, at: u64) -> bool {
    let above = at.checked_sub(input.stack_pointer);
    let is_near = above.is_some_and(|bytes| bytes <= MAX_FRAME_BYTES);
    is_near && at.is_multiple_of(8) && memory.read(RuntimeAddr(at), &mut [0; 16]).is_ok()
}

/// The return address is on top of the stack, and nothing was saved.
fn called() -> Row<'static> {
    let mut row = based_on(RSP, 8);
    set(&mut row, RIP, RegisterRule::Offset(-8));
    row
}

/// The caller's frame pointer and the return address are at the frame pointer. Other saved
/// registers are unknown.
fn with_frame_pointer() -> Row<'static> {
    let mut row = based_on(RBP, 16);
    for register in [3, 12, 13, 14, 15] {
        set(&mut row, Register(register), RegisterRule::Undefined);
    }
    set(&mut row, RBP, RegisterRule::Offset(-16));
    set(&mut row, RIP, RegisterRule::Offset(-8));
    row
}

/// The kernel's `ucontext` is on top of the stack, with all registers (asm/sigcontext.h).
pub(crate) fn trampoline() -> Row<'static> {
    let mut row = Row::new(RIP);
    row.signal_frame = true;
    row.cfa = CfaRule::Expression(Expression(&[0x77, 0xa0, 0x01, 0x06]));
    for (register, expression) in &SIGCONTEXT {
        let rule = RegisterRule::Expression(Expression(expression));
        set(&mut row, Register(*register), rule);
    }
    row
}

/// By DWARF number: `DW_OP_breg7` (rsp) and the register's offset in `uc_mcontext`.
const SIGCONTEXT: [(u16, [u8; 3]); 17] = [
    (8, [0x77, 0xa8, 0x00]),
    (9, [0x77, 0xb0, 0x00]),
    (10, [0x77, 0xb8, 0x00]),
    (11, [0x77, 0xc0, 0x00]),
    (12, [0x77, 0xc8, 0x00]),
    (13, [0x77, 0xd0, 0x00]),
    (14, [0x77, 0xd8, 0x00]),
    (15, [0x77, 0xe0, 0x00]),
    (5, [0x77, 0xe8, 0x00]),
    (4, [0x77, 0xf0, 0x00]),
    (6, [0x77, 0xf8, 0x00]),
    (3, [0x77, 0x80, 0x01]),
    (1, [0x77, 0x88, 0x01]),
    (0, [0x77, 0x90, 0x01]),
    (2, [0x77, 0x98, 0x01]),
    (7, [0x77, 0xa0, 0x01]),
    (16, [0x77, 0xa8, 0x01]),
];

fn based_on(register: Register, offset: i64) -> Row<'static> {
    let mut row = Row::new(RIP);
    row.cfa = CfaRule::RegisterOffset { register, offset };
    row
}

fn set(row: &mut Row<'static>, register: Register, rule: RegisterRule<'static>) {
    // There are fewer registers than a row has room for.
    let _ = row.set_rule(register, Some(rule));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::Error;
    use crate::client::AlignedMemory;

    const CODE: u64 = 0x1000;
    const STACK: u64 = 0x8000;

    /// The guess for sixteen bytes of code and a kilobyte of stack, without other memory.
    fn guess_row(code: [u8; 16], input: GuessInput) -> Option<Row<'static>> {
        let memory = AlignedMemory::new(|addr| match addr {
            CODE => Ok(u64::from_le_bytes(code[..8].try_into().unwrap())),
            0x1008 => Ok(u64::from_le_bytes(code[8..].try_into().unwrap())),
            // On top of the stack is a code address.
            STACK => Ok(CODE + 4),
            0x8008..0x8400 => Ok(0),
            _ => Err(Error::INVALID),
        });
        row(&memory, &input)
    }

    fn known() -> GuessInput {
        GuessInput {
            ip: CODE,
            is_interrupted: false,
            stack_pointer: STACK,
            frame_pointer: None,
        }
    }

    const NOPS: [u8; 16] = [0x90; 16];

    #[test]
    fn code_is_known_by_its_bytes() {
        for trampoline in [
            &[0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05][..],
            &[0xb8, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05],
        ] {
            let mut code = NOPS;
            code[..trampoline.len()].copy_from_slice(trampoline);
            let row = guess_row(code, known()).unwrap();
            assert!(row.signal_frame);
            assert_eq!(row.rules().len(), 17);
        }
        let plt = [
            0xff, 0x25, 0xe2, 0x49, 0x13, 0, 0x68, 0xae, 3, 0, 0, 0xe9, 0, 0xc5, 0xff, 0xff,
        ];
        let row = guess_row(plt, known()).unwrap();
        assert_eq!(row, called());
        assert_eq!(guess_row(NOPS, known()), None);
    }

    #[test]
    fn a_call_to_nowhere_has_left_its_return_address() {
        let nowhere = GuessInput {
            ip: 0,
            is_interrupted: true,
            ..known()
        };
        assert_eq!(guess_row(NOPS, nowhere), Some(called()));
        // No call returns to an unreadable address; and a caller must be somewhere.
        let returning = GuessInput {
            is_interrupted: false,
            ..nowhere
        };
        assert_eq!(guess_row(NOPS, returning), None);
        let empty = GuessInput {
            stack_pointer: STACK + 8,
            ..nowhere
        };
        assert_eq!(guess_row(NOPS, empty), None);
    }

    #[test]
    fn a_frame_pointer_is_believed_within_bounds() {
        for (at, is_believed) in [
            (STACK, true),
            (STACK + 0x3f0, true),
            (STACK + 0x3f8, false), // its second word is missing
            (STACK + 4, false),
            (STACK - 8, false),
            (0, false),
        ] {
            let known = GuessInput {
                frame_pointer: Some(at),
                ..known()
            };
            let expected = is_believed.then(with_frame_pointer);
            assert_eq!(guess_row(NOPS, known), expected, "{at:#x}");
        }
    }
}
