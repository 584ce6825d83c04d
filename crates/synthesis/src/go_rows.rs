//! Rows of Go functions, by the frame sizes in Go's own table.
//!
//! The CFA is the stack pointer plus the frame's size plus 8. Go's calls preserve no register but
//! the frame pointer, which a function with a frame saves below the return address
//! (`cmd/internal/obj/x86`, `preprocess`).

use core::ops::Range;

use unspool_elf::{ElfFile, GoFunction, GoFunctions};
use unspool_rows::expression::operation::DW_OP_PLUS_UCONST;
use unspool_rows::leb128::put_unsigned;
use unspool_rows::table::{FdeHeader, RowStart, TableError};
use unspool_rows::{Arch, CfaRule, Expression, Register, RegisterRule, Row, Table, Vaddr};

use crate::extents::subtract_ranges;
use crate::go_stack_switch::{self, GoroutineOffsets, SavedStackPointer, SwitchedCode};

/// DWARF register numbers (x86-64 psABI, figure 3.36).
const RBP: Register = Register(6);
const RSP: Register = Register(7);
const RETURN_ADDRESS: Register = Register(16);
/// Registers that C functions preserve, and Go functions do not: rbx, r12, r13, r15. Go keeps the
/// current goroutine in r14.
const NOT_PRESERVED: [Register; 4] = [Register(3), Register(12), Register(13), Register(15)];
/// Runs a function on the thread's own stack.
const SYSTEM_STACK: &str = "runtime.systemstack";
/// The handler of signals. Go's own walks end in it; the kernel calls it, and returns by its frame.
const SIGNAL_HANDLER: &str = "runtime.sigtramp";
/// Give the goroutine back to the scheduler, and do not return.
const PREEMPTIONS: [&str; 2] = ["runtime.gopreempt_m", "runtime.preemptPark"];

/// Go's own table of functions, where rows are made of it: on x86-64.
#[must_use]
pub fn go_functions(file: &ElfFile) -> Option<GoFunctions<'_>> {
    GoFunctions::new(file).filter(|_| file.abi().arch == Arch::X86_64)
}

/// The Go functions outside of some ranges that ascend.
pub(crate) fn functions<'f>(file: &'f ElfFile, covered: &[Range<u64>]) -> Vec<GoFunction<'f>> {
    let functions = go_functions(file).into_iter().flat_map(GoFunctions::iter);
    let is_free = |function: &GoFunction<'_>| {
        let range = function.range.start.0..function.range.end.0;
        range.start < range.end
            && subtract_ranges(core::slice::from_ref(&range), covered) == [range]
    };
    functions.filter(is_free).collect()
}

/// Adds the rows of functions. One that sets the stack pointer to an arbitrary value has none,
/// unless it is known.
pub(crate) fn add(
    table: &mut Table,
    file: &ElfFile,
    functions: &[GoFunction<'_>],
) -> Result<(), TableError> {
    let code = |function: &GoFunction<'_>| {
        let Range { start, end } = function.range;
        file.bytes_at(start, end.0 - start.0)
    };
    let mut switching = functions.iter().filter(|function| function.writes_sp);
    let system_stack = switching.find(|function| function.has_name(SYSTEM_STACK));
    let offsets = system_stack.and_then(code);
    let offsets = offsets.and_then(GoroutineOffsets::from_system_stack);
    for function in functions {
        let switched = || {
            let name = function.name()?;
            go_stack_switch::find(&name, code(function)?, offsets)
        };
        if function.writes_sp
            && let Some(switched) = switched()
        {
            add_switching(table, file, function, &switched)?;
        } else if is_root(function) {
            let root = table.intern(&row(cfa(0), FramePointer::Lost, ReturnAddress::None))?;
            let start = function.range.start;
            push(
                table,
                function.range.clone(),
                &[RowStart { start, row: root }],
            )?;
        } else if !function.writes_sp {
            let (rows, end) = frame_rows(table, file, function)?;
            if !rows.is_empty() {
                push(table, function.range.start..end, &rows)?;
            }
        }
    }
    Ok(())
}

/// Whether nothing is behind a function on its stack.
fn is_root(function: &GoFunction<'_>) -> bool {
    let is_preemption = PREEMPTIONS.iter().any(|name| function.has_name(name));
    is_preemption || function.is_root && !function.has_name(SIGNAL_HANDLER)
}

/// Adds the rows of a function that switches stacks: those of its code on other stacks, and by its
/// frame sizes those of the rest.
fn add_switching(
    table: &mut Table,
    file: &ElfFile,
    function: &GoFunction<'_>,
    switched: &[SwitchedCode],
) -> Result<(), TableError> {
    let (rows, end) = frame_rows(table, file, function)?;
    let ends = rows.iter().skip(1).map(|next| next.start).chain([end]);
    let frames: Vec<_> = rows.iter().zip(ends).collect();
    let address = |offset: usize| function.range.start.offset(offset as u64);
    let others = switched
        .iter()
        .map(|code| address(code.range.start)..address(code.range.end));
    let others: Vec<_> = others.map(|range| range.start.0..range.end.0).collect();
    for (first, end) in frames {
        let own = first.start.0..end.0;
        for part in subtract_ranges(core::slice::from_ref(&own), &others) {
            let start = Vaddr(part.start);
            push(
                table,
                start..Vaddr(part.end),
                &[RowStart { start, ..*first }],
            )?;
        }
    }
    for (code, range) in switched.iter().zip(others) {
        let mut sizes = function.frame_sizes();
        let size = sizes.find(|(sizes, _)| sizes.contains(&Vaddr(range.start)));
        let Some(size) = size.and_then(|(_, size)| u32::try_from(size).ok()) else {
            continue;
        };
        let mut expression = Vec::new();
        let code_address;
        let (cfa, return_address) = match &code.saved {
            SavedStackPointer::Register(register) => {
                let offset = i64::from(size) + 8;
                let register = *register;
                (
                    CfaRule::RegisterOffset { register, offset },
                    ReturnAddress::Pushed,
                )
            }
            SavedStackPointer::Expression(saved) => {
                expression.extend(saved);
                expression.push(DW_OP_PLUS_UCONST);
                put_unsigned(&mut expression, u64::from(size) + 8);
                (
                    CfaRule::Expression(Expression(&expression)),
                    ReturnAddress::Pushed,
                )
            }
            SavedStackPointer::Caller(offsets) => {
                expression = offsets.stack_pointer();
                code_address = offsets.code_address();
                (
                    CfaRule::Expression(Expression(&expression)),
                    ReturnAddress::At(Expression(&code_address)),
                )
            }
            SavedStackPointer::Discarded => (cfa(0), ReturnAddress::None),
        };
        // Frames without callees of their own do not save it.
        let frame_pointer = match return_address {
            ReturnAddress::None => FramePointer::Lost,
            _ if size == 0 => FramePointer::Unsaved,
            _ => FramePointer::Saved,
        };
        let row = table.intern(&row(cfa, frame_pointer, return_address))?;
        let start = Vaddr(range.start);
        push(table, start..Vaddr(range.end), &[RowStart { start, row }])?;
    }
    Ok(())
}

/// The rows of a function by its frame sizes, and the end of the last.
fn frame_rows(
    table: &mut Table,
    file: &ElfFile,
    function: &GoFunction<'_>,
) -> Result<(Vec<RowStart>, Vaddr), TableError> {
    let mut rows: Vec<RowStart> = Vec::new();
    let mut end = function.range.start;
    let mut saved = None;
    for (range, size) in function.frame_sizes() {
        let Ok(size) = u32::try_from(size) else {
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
    Ok((rows, end))
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

/// Where the return address is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReturnAddress<'e> {
    Pushed,
    /// At the address that an expression yields.
    At(Expression<'e>),
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
    return_address: ReturnAddress<'e>,
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
        ReturnAddress::At(expression) => RegisterRule::Expression(expression),
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
