//! Rows of Go functions, by the frame sizes in Go's own table.
//!
//! The CFA is the stack pointer plus the frame's size plus 8. Go's calls preserve no register but
//! the frame pointer, which a function with a frame saves below the return address
//! (`cmd/internal/obj/x86`, `preprocess`).

use core::ops::Range;

use unspool_elf::{ElfFile, GoFunction, GoFunctions};
use unspool_rows::table::{FdeHeader, RowStart, TableError};
use unspool_rows::{Arch, CfaRule, Expression, Register, RegisterRule, Row, Table, Vaddr};

use crate::extents::subtract_ranges;
use crate::go_stack_switch;

/// DWARF register numbers (x86-64 psABI, figure 3.36).
const RBP: Register = Register(6);
const RSP: Register = Register(7);
const RETURN_ADDRESS: Register = Register(16);
/// Registers that C functions preserve, and Go functions do not: rbx, r12 to r15.
const NOT_PRESERVED: [Register; 5] = [
    Register(3),
    Register(12),
    Register(13),
    Register(14),
    Register(15),
];

/// The Go functions outside of some ranges that ascend. None on other machines than x86-64.
pub(crate) fn functions<'f>(file: &'f ElfFile, covered: &[Range<u64>]) -> Vec<GoFunction<'f>> {
    let table = GoFunctions::new(file).filter(|_| file.abi().arch == Arch::X86_64);
    let functions = table.into_iter().flat_map(GoFunctions::iter);
    let is_free = |function: &GoFunction<'_>| {
        let range = function.range.start.0..function.range.end.0;
        range.start < range.end
            && subtract_ranges(core::slice::from_ref(&range), covered) == [range]
    };
    functions.filter(is_free).collect()
}

/// Runs a function on the thread's own stack, which ends there: nothing returns to it.
const SCHEDULER_CALL: &str = "runtime.mcall";
/// Runs a C function on the thread's own stack.
const C_CALL: [&str; 2] = ["runtime.asmcgocall", "runtime.asmcgocall.abi0"];

/// Adds the rows of functions. One that sets the stack pointer to an arbitrary value has none,
/// unless stacks end in it.
pub(crate) fn add(
    table: &mut Table,
    file: &ElfFile,
    functions: &[GoFunction<'_>],
) -> Result<(), TableError> {
    for function in functions {
        let name = function.name().filter(|_| function.writes_sp);
        match name.as_deref() {
            Some(SCHEDULER_CALL) => add_root(table, function)?,
            Some(name) if C_CALL.contains(&name) => add_c_call(table, file, function)?,
            _ if function.is_root => add_root(table, function)?,
            Some(_) => {}
            None => add_function(table, file, function)?,
        }
    }
    Ok(())
}

fn add_root(table: &mut Table, function: &GoFunction<'_>) -> Result<(), TableError> {
    let cfa = cfa(0);
    let row = table.intern(&row(cfa, FramePointer::Lost, ReturnAddress::None))?;
    let start = function.range.start;
    push(table, start..function.range.end, &[RowStart { start, row }])
}

fn add_c_call(
    table: &mut Table,
    file: &ElfFile,
    function: &GoFunction<'_>,
) -> Result<(), TableError> {
    let Range { start, end } = function.range;
    let code = file.bytes_at(start, end.0 - start.0);
    let Some(switched) = code.and_then(|code| go_stack_switch::find(code, start)) else {
        return Ok(());
    };
    let cfa = CfaRule::Expression(Expression(&switched.cfa));
    let row = table.intern(&row(cfa, FramePointer::Unsaved, ReturnAddress::Pushed))?;
    let start = switched.range.start;
    push(table, switched.range, &[RowStart { start, row }])
}

fn add_function(
    table: &mut Table,
    file: &ElfFile,
    function: &GoFunction<'_>,
) -> Result<(), TableError> {
    let mut rows: Vec<RowStart> = Vec::new();
    let mut end = function.range.start;
    let mut saved = None;
    for (range, size) in function.frame_sizes() {
        let (Ok(size), true) = (u32::try_from(size), range.start < range.end) else {
            break;
        };
        end = range.end;
        let mut start = range.start;
        let mut add = |start, frame_pointer| {
            let row = table.intern(&row(cfa(size), frame_pointer, ReturnAddress::Pushed))?;
            rows.push(RowStart { start, row });
            Ok(())
        };
        if size > 0 && saved.is_none() {
            let (frame_pointer, length) = save(file, start, size);
            if length > 0 {
                add(start, FramePointer::Unsaved)?;
            }
            start = start.offset(length);
            saved = Some(frame_pointer);
        }
        if start < end {
            add(
                start,
                saved.filter(|_| size > 0).unwrap_or(FramePointer::Unsaved),
            )?;
        }
    }
    if rows.is_empty() {
        return Ok(());
    }
    push(table, function.range.start..end, &rows)
}

fn push(table: &mut Table, range: Range<Vaddr>, rows: &[RowStart]) -> Result<(), TableError> {
    let header = FdeHeader {
        start: range.start,
        end: range.end,
        personality: None,
        lsda: None,
        origin: 0,
    };
    table.push(header, rows).map(drop)
}

/// Where the caller's frame pointer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FramePointer {
    /// Still in the register.
    Unsaved,
    /// Below the return address.
    Saved,
    /// Unknown.
    Lost,
}

/// Whether there is a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReturnAddress {
    Pushed,
    /// Stacks end here.
    None,
}

/// Where the frame pointer is in a frame of some size that begins at an address, and after how many
/// bytes of code.
fn save(file: &ElfFile, start: Vaddr, size: u32) -> (FramePointer, u64) {
    const PUSH_RBP: u8 = 0x55;
    /// `mov %rbp, disp8(%rsp)` and `mov %rbp, disp32(%rsp)`, without the displacement.
    const SAVE_NEAR: [u8; 4] = [0x48, 0x89, 0x6c, 0x24];
    const SAVE_FAR: [u8; 4] = [0x48, 0x89, 0xac, 0x24];
    let before = start
        .0
        .checked_sub(1)
        .and_then(|addr| file.bytes_at(Vaddr(addr), 1));
    if size == 8 && before == Some(&[PUSH_RBP]) {
        return (FramePointer::Saved, 0);
    }
    let slot = size.wrapping_sub(8);
    let code = file.rest_at(start).unwrap_or_default();
    let near = || Some(u32::from(*code.strip_prefix(&SAVE_NEAR)?.first()?));
    let far = || {
        Some(u32::from_le_bytes(
            *code.strip_prefix(&SAVE_FAR)?.first_chunk()?,
        ))
    };
    if near() == Some(slot) && slot < 0x80 {
        (FramePointer::Saved, 5)
    } else if far() == Some(slot) {
        (FramePointer::Saved, 8)
    } else {
        (FramePointer::Lost, 0)
    }
}

/// The CFA of a frame of some size.
fn cfa(size: u32) -> CfaRule<'static> {
    CfaRule::RegisterOffset {
        register: RSP,
        offset: i64::from(size) + 8,
    }
}

fn row<'e>(
    cfa: CfaRule<'e>,
    frame_pointer: FramePointer,
    return_address: ReturnAddress,
) -> Row<'e> {
    let mut row = Row::new(RETURN_ADDRESS);
    row.cfa = cfa;
    let frame_pointer = match frame_pointer {
        FramePointer::Unsaved => None,
        FramePointer::Saved => Some(RegisterRule::Offset(-16)),
        FramePointer::Lost => Some(RegisterRule::Undefined),
    };
    let return_address = match return_address {
        ReturnAddress::Pushed => RegisterRule::Offset(-8),
        ReturnAddress::None => RegisterRule::Undefined,
    };
    let rules = NOT_PRESERVED.map(|register| (register, Some(RegisterRule::Undefined)));
    let own = [(RBP, frame_pointer), (RETURN_ADDRESS, Some(return_address))];
    for (register, rule) in rules.into_iter().chain(own) {
        // There are fewer registers than a row has room for.
        let set = row.set_rule(register, rule);
        debug_assert!(set.is_ok());
    }
    row
}
