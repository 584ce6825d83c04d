//! Code of Go's runtime that runs on another stack than its caller (`runtime/asm_amd64.s` and the
//! clocks of `runtime/sys_linux_amd64.s`).
//!
//! A goroutine has a small stack of its own. The runtime does its work, and C code runs, on the
//! thread's stack. Each function that switches keeps the goroutine's stack pointer somewhere else.
//! The offsets differ between Go's versions, so they are read from the code.

use core::ops::Range;

use unspool_rows::Register;
use unspool_rows::expression::operation::{
    DW_OP_BREG0, DW_OP_DEREF, DW_OP_MINUS, DW_OP_PLUS_UCONST,
};
use unspool_rows::leb128::{put_signed, put_unsigned};

/// DWARF register numbers (x86-64 psABI, figure 3.36).
const RDX: Register = Register(1);
const RSP: Register = Register(7);
const R12: Register = Register(12);
/// The current goroutine, or the one of the thread's own stack.
const R14: Register = Register(14);
/// `g.stack.hi`: the top of a goroutine's stack.
const STACK_TOP: u8 = 8;

/// The stack pointer of code that runs on another stack, before it switched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SavedStackPointer {
    /// In a register.
    Register(Register),
    /// The result of a DWARF expression.
    Expression(Vec<u8>),
    /// The runtime has the caller's, and its code address (`g.sched`). The goroutine's stack may
    /// be another one by now, which does not have the return address.
    Caller(GoroutineOffsets),
    /// The function does not return to its caller.
    Discarded,
}

/// Code that runs on another stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SwitchedCode {
    /// Its offsets in the function.
    pub(crate) range: Range<usize>,
    pub(crate) saved: SavedStackPointer,
}

/// Where the goroutine's stack pointer is while the runtime works on the thread's stack, as
/// `runtime.systemstack` restores it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GoroutineOffsets {
    /// `g.m`: the thread.
    thread: u8,
    /// `m.curg`: the thread's goroutine.
    goroutine: u32,
    /// `g.sched.sp`.
    stack_pointer: u8,
}

/// Finds all code of a function that runs on another stack. `None` if the function is not known, or
/// has another form. `offsets` are those of `runtime.systemstack`.
pub(crate) fn find(
    name: &str,
    code: &[u8],
    offsets: Option<GoroutineOffsets>,
) -> Option<Vec<SwitchedCode>> {
    match name.strip_suffix(".abi0").unwrap_or(name) {
        "runtime.mcall" => {
            // mov SP(%r14), %rsp
            let switch = end_of(code, &[0x49, 0x8b, 0x66])? + 1;
            Some(vec![SwitchedCode {
                range: switch..code.len(),
                saved: SavedStackPointer::Discarded,
            }])
        }
        "runtime.systemstack" => system_stack(code, offsets?),
        "runtime.morestack" => {
            // mov SP(%rbx), %rsp
            let switch = end_of(code, &[0x48, 0x8b, 0x63])? + 1;
            Some(vec![SwitchedCode {
                range: switch..code.len(),
                saved: SavedStackPointer::Caller(offsets?),
            }])
        }
        "runtime.asmcgocall" => c_call(code),
        "runtime.nanotime1" | "runtime.walltime" | "time.now" => {
            // mov %rsp, %r12: the clock of the vDSO preserves it.
            let saved = end_of(code, &[0x49, 0x89, 0xe4])?;
            Some(vec![SwitchedCode {
                range: saved..code.len(),
                saved: SavedStackPointer::Register(R12),
            }])
        }
        _ => None,
    }
}

impl GoroutineOffsets {
    /// The offsets by which `runtime.systemstack` goes back to the goroutine's stack.
    pub(crate) fn from_system_stack(code: &[u8]) -> Option<GoroutineOffsets> {
        let called = end_of(code, &CALL_FUNCTION)?;
        let back = code.get(called..)?;
        // mov THREAD(%rax), %rbx
        let thread = end_of(back, &[0x48, 0x8b, 0x58])?;
        let rest = back.get(thread + 1..)?;
        // mov GOROUTINE(%rbx), %rax, directly behind.
        let (goroutine, rest) = match *rest {
            [0x48, 0x8b, 0x43, offset, ref rest @ ..] => (offset.into(), rest),
            [0x48, 0x8b, 0x83, a, b, c, d, ref rest @ ..] => {
                (u32::from_le_bytes([a, b, c, d]), rest)
            }
            _ => return None,
        };
        Some(GoroutineOffsets {
            thread: *back.get(thread)?,
            goroutine,
            stack_pointer: *rest.get(end_of(rest, &RESTORE_STACK_POINTER)?)?,
        })
    }

    /// `*(*(*(r14 + thread) + goroutine) + stack_pointer)`.
    pub(crate) fn stack_pointer(self) -> Vec<u8> {
        let mut expression = self.address(0);
        expression.push(DW_OP_DEREF);
        expression
    }

    /// The address of `g.sched.pc`, which is behind `g.sched.sp`.
    pub(crate) fn code_address(self) -> Vec<u8> {
        self.address(8)
    }

    /// The address of a field from `g.sched.sp` on.
    fn address(self, field: u32) -> Vec<u8> {
        let mut expression = register_plus(R14, self.thread.into());
        for offset in [self.goroutine, u32::from(self.stack_pointer) + field] {
            expression.extend([DW_OP_DEREF, DW_OP_PLUS_UCONST]);
            put_unsigned(&mut expression, offset.into());
        }
        expression
    }
}

/// `call *%rdi` in `runtime.systemstack`.
const CALL_FUNCTION: [u8; 2] = [0xff, 0xd7];
/// `mov SP(%rax), %rsp`, without the offset.
const RESTORE_STACK_POINTER: [u8; 3] = [0x48, 0x8b, 0x60];

fn system_stack(code: &[u8], offsets: GoroutineOffsets) -> Option<Vec<SwitchedCode>> {
    let called = end_of(code, &CALL_FUNCTION)?;
    let before = code.get(..called)?;
    // mov %rbx, %rsp; or mov SP(%rdx), %rsp
    let copied = end_of(before, &[0x48, 0x89, 0xdc]);
    let start = copied.or_else(|| Some(end_of(before, &[0x48, 0x8b, 0x62])? + 1))?;
    let end = called + end_of(code.get(called..)?, &RESTORE_STACK_POINTER)? + 1;
    Some(vec![SwitchedCode {
        range: start..end,
        saved: SavedStackPointer::Expression(offsets.stack_pointer()),
    }])
}

/// `runtime.asmcgocall` saves the goroutine and the depth of its stack, which can move during a
/// call back to Go. If it is called on the thread's stack, it saves the stack pointer.
fn c_call(code: &[u8]) -> Option<Vec<SwitchedCode>> {
    // mov SP(%rsi), %rsp
    let switch = end_of(code, &[0x48, 0x8b, 0x66])? + 1;
    // sub %rdx, %rdi: the depth of the goroutine's stack.
    let computed = switch + end_of(code.get(switch..)?, &[0x48, 0x29, 0xd7])?;
    // mov %rdi, DEPTH(%rsp)
    let (depth, length) = rsp_offset(code.get(computed..)?, [0x89, 0x7c, 0x3c])?;
    let first = computed + length;
    // mov 8(%rdi), %rsi: the top of its stack.
    let load_top = [0x48, 0x8b, 0x77, STACK_TOP];
    let last = first + end_of(code.get(first..)?, &load_top)?;
    let loaded = last - load_top.len();
    // mov GOROUTINE(%rsp), %rdi; its length depends on the offset.
    let goroutine = [5, 4].into_iter().find_map(|length| {
        let before = code.get(loaded.checked_sub(length)?..)?;
        let (offset, found) = rsp_offset(before, [0x8b, 0x7c, 0x3c])?;
        (found == length).then_some(offset)
    })?;
    // sub DEPTH(%rsp), %rsi
    let (subtracted, _) = rsp_offset(code.get(last..)?, [0x2b, 0x74, 0x34])?;
    let end = last + end_of(code.get(last..)?, &TAKE_STACK_POINTER)?;
    // On the thread's stack: sub $SIZE, %rsp.
    let direct = end + end_of(code.get(end..)?, &[0x48, 0x83, 0xec])? + 1;
    let rest = code.get(direct..)?;
    // mov %rdx, SAVED(%rsp)
    let (at, saved, length) = (0..rest.len()).find_map(|at| {
        let (offset, length) = rsp_offset(rest.get(at..)?, [0x89, 0x54, 0x14])?;
        Some((at, offset, length))
    })?;
    let stored = direct + at + length;
    let returned = stored + end_of(code.get(stored..)?, &TAKE_STACK_POINTER)?;
    let caller = [
        // *(*(rsp + goroutine) + 8) - *(rsp + depth)
        register_plus(RSP, goroutine.into()),
        vec![DW_OP_DEREF, DW_OP_PLUS_UCONST, STACK_TOP, DW_OP_DEREF],
        register_plus(RSP, depth.into()),
        vec![DW_OP_DEREF, DW_OP_MINUS],
    ];
    let mut direct_caller = register_plus(RSP, saved.into());
    direct_caller.push(DW_OP_DEREF);
    let code = [
        (switch..first, SavedStackPointer::Register(RDX)),
        (first..end, SavedStackPointer::Expression(caller.concat())),
        (direct..stored, SavedStackPointer::Register(RDX)),
        (
            stored..returned,
            SavedStackPointer::Expression(direct_caller),
        ),
    ];
    let code = code.map(|(range, saved)| SwitchedCode { range, saved });
    (subtracted == depth).then(|| code.into())
}

/// `mov %rsi, %rsp`.
const TAKE_STACK_POINTER: [u8; 3] = [0x48, 0x89, 0xf4];

/// The offset in an operand `OFFSET(%rsp)`, and the instruction's length. The instruction has a REX
/// prefix, an opcode, and the ModRM byte of an 8-bit offset or of none.
fn rsp_offset(code: &[u8], [opcode, near, none]: [u8; 3]) -> Option<(u8, usize)> {
    match *code {
        [0x48, found, modrm, 0x24, offset, ..] if (found, modrm) == (opcode, near) => {
            Some((offset, 5))
        }
        [0x48, found, modrm, 0x24, ..] if (found, modrm) == (opcode, none) => Some((0, 4)),
        _ => None,
    }
}

/// The operation that pushes a register plus an offset.
fn register_plus(register: Register, offset: i64) -> Vec<u8> {
    let number = u8::try_from(register.0).unwrap_or_default();
    let mut operation = vec![DW_OP_BREG0 + number];
    put_signed(&mut operation, offset);
    operation
}

/// The end of the first of some bytes.
fn end_of(code: &[u8], wanted: &[u8]) -> Option<usize> {
    let start = code
        .windows(wanted.len())
        .position(|found| found == wanted)?;
    Some(start + wanted.len())
}
