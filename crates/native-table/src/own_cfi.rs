//! The unwind table of the code itself, for debuggers and profilers.

use unspool_rows::table::{FdeHeader, RowStart};
use unspool_rows::{Abi, CfaRule, Register, RegisterRule, Row, Table, Vaddr};

use crate::object::NativeError;
use crate::x86_64::CodeFrame;

/// The frame pointer and the other register that the prologue saves, with their offsets from the
/// CFA.
const FRAME_POINTER: (u16, i64) = (6, -16);
const SAVED: [(u16, i64); 5] = [(3, -24), (12, -32), (13, -40), (14, -48), (15, -56)];

/// The table of code of this size, in bytes, at an address.
pub(crate) fn own_table(
    abi: Abi,
    frame: &CodeFrame,
    text: u64,
    size: usize,
) -> Result<Table, NativeError> {
    let spec = abi.arch.spec();
    let sp = spec.stack_pointer;
    let (fp, fp_offset) = FRAME_POINTER;
    let mut table = Table::new(abi);
    let mut rows = Vec::new();
    let mut row = Row::new(spec.return_address);
    let mut put = |row: &Row<'_>, at: u32| {
        let start = Vaddr(text).offset(at.into());
        let row = table.intern(row).map_err(NativeError::from_error)?;
        rows.push(RowStart { start, row });
        Ok(())
    };
    let at_cfa = |row: &mut Row<'_>, register: u16, offset| {
        let rule = RegisterRule::Offset(offset);
        let set = row.set_rule(Register(register), Some(rule));
        set.map(drop).map_err(NativeError::from_error)
    };
    let cfa = |register, offset| CfaRule::RegisterOffset { register, offset };
    row.cfa = cfa(sp, 8);
    at_cfa(&mut row, spec.return_address.0, -8)?;
    put(&row, 0)?;
    row.cfa = cfa(sp, 16);
    at_cfa(&mut row, fp, fp_offset)?;
    put(&row, frame.prologue.pushed)?;
    row.cfa = cfa(Register(fp), 16);
    put(&row, frame.prologue.pointed)?;
    for (register, offset) in SAVED {
        at_cfa(&mut row, register, offset)?;
    }
    put(&row, frame.prologue.saved)?;
    let inside = row;
    // Before the return, the registers are restored, and still in their slots, too.
    row.cfa = cfa(sp, 8);
    row.set_rule(Register(fp), None)
        .map_err(NativeError::from_error)?;
    put(&row, frame.epilogue.popped)?;
    put(&inside, frame.epilogue.end)?;
    let header = FdeHeader {
        start: Vaddr(text),
        end: Vaddr(text).offset(size as u64),
        personality: None,
        lsda: None,
        origin: 0,
    };
    table.push(header, &rows).map_err(NativeError::from_error)?;
    Ok(table)
}
