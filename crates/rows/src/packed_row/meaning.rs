//! Words to rows.

use super::{CfaBase, PackedForm, PackedRow, SavedRegister, SavedRegisters};
use crate::arch::{Arch, SignalRecord};
use crate::expression::Expression;
use crate::expression::operation::{
    DW_OP_AND, DW_OP_BREG0, DW_OP_DEREF, DW_OP_GE, DW_OP_LIT0, DW_OP_PLUS, DW_OP_SHL,
};
use crate::register::Register;
use crate::row::{CfaRule, RegisterRule, Row};

/// The bytes of the expressions in a row that [`PackedRow::row`] yields.
#[derive(Debug, Clone, Copy, Default)]
pub struct PackedExpressions {
    cfa: [u8; 11],
    registers: [[u8; 4]; 17],
}

impl PackedRow {
    /// The row, which is what the word means. `None` if it is not a row.
    #[must_use]
    pub fn row(self, arch: Arch, buffer: &mut PackedExpressions) -> Option<Row<'_>> {
        let spec = arch.spec();
        let mut row = Row::new(spec.pc);
        let (base, cfa_offset) = match self.form()? {
            PackedForm::Outermost => {
                row.set_rule(spec.pc, Some(RegisterRule::Undefined)).ok()?;
                return Some(row);
            }
            PackedForm::Signal => return signal_row(spec.signal_record?, row, buffer),
            PackedForm::Usual { base, cfa_offset } => (base, cfa_offset),
            PackedForm::Realigned { cfa_at } => {
                let [a, b, c, d] = register_offset(spec.frame_pointer?, cfa_at)?;
                buffer.cfa = [a, b, c, d, DW_OP_DEREF, 0, 0, 0, 0, 0, 0];
                return self.with_saved(row, 5, arch, buffer);
            }
            PackedForm::LinkageTable { pushed_from } => {
                buffer.cfa = linkage_table(u8::try_from(pushed_from).ok()?);
                return self.with_saved(row, buffer.cfa.len(), arch, buffer);
            }
        };
        row.cfa = CfaRule::RegisterOffset {
            register: match base {
                CfaBase::StackPointer => spec.stack_pointer,
                CfaBase::FramePointer => spec.frame_pointer?,
            },
            offset: i64::try_from(cfa_offset).ok()?,
        };
        self.with_saved(row, 0, arch, buffer)
    }

    /// The row with its rules for registers, and with a CFA of the first bytes in `buffer`, if any.
    fn with_saved<'b>(
        self,
        mut row: Row<'b>,
        cfa_bytes: usize,
        arch: Arch,
        buffer: &'b mut PackedExpressions,
    ) -> Option<Row<'b>> {
        let spec = arch.spec();
        let is_realigned = matches!(self.form()?, PackedForm::Realigned { .. });
        let saved = SavedRegisters::REGISTERS
            .map(|number| self.saved().get(number).unwrap_or(SavedRegister::Unchanged));
        for (slot, saved) in buffer.registers.iter_mut().zip(saved) {
            if let SavedRegister::Below(bytes) = saved {
                let offset = 8 - i64::try_from(bytes).ok()?;
                *slot = register_offset(spec.frame_pointer?, offset)?;
            }
        }
        let buffer = &*buffer;
        if cfa_bytes != 0 {
            row.cfa = CfaRule::Expression(Expression(buffer.cfa.get(..cfa_bytes)?));
        }
        row.set_rule(spec.pc, Some(RegisterRule::Offset(-8))).ok()?;
        let numbered = SavedRegisters::REGISTERS.into_iter().zip(saved);
        for ((number, saved), slot) in numbered.zip(&buffer.registers) {
            let rule = match saved {
                SavedRegister::Unchanged => None,
                SavedRegister::Undefined => Some(RegisterRule::Undefined),
                SavedRegister::Below(_) if is_realigned => {
                    Some(RegisterRule::Expression(Expression(slot)))
                }
                SavedRegister::Below(bytes) => {
                    Some(RegisterRule::Offset(-i64::try_from(bytes).ok()?))
                }
            };
            row.set_rule(Register(number), rule).ok()?;
        }
        Some(row)
    }
}

fn signal_row<'b>(
    record: &SignalRecord,
    mut row: Row<'b>,
    buffer: &'b mut PackedExpressions,
) -> Option<Row<'b>> {
    let place = |offset: u64| {
        let offset = offset.checked_add(record.above_stack_pointer)?;
        register_offset(record.stack_pointer, i64::try_from(offset).ok()?)
    };
    let [a, b, c, d] = place(record.address(0, record.stack_pointer)?)?;
    buffer.cfa = [a, b, c, d, DW_OP_DEREF, 0, 0, 0, 0, 0, 0];
    for (slot, offset) in buffer.registers.iter_mut().zip(record.offsets) {
        *slot = place(*offset)?;
    }
    let buffer = &*buffer;
    row.signal_frame = true;
    row.cfa = CfaRule::Expression(Expression(buffer.cfa.get(..5)?));
    for (slot, number) in buffer.registers.iter().zip(0..) {
        let rule = RegisterRule::Expression(Expression(slot));
        row.set_rule(Register(number), Some(rule)).ok()?;
    }
    Some(row)
}

/// The expression of a register and an offset of at most 20 bits and a sign (`DW_OP_breg0` to
/// `DW_OP_breg31`).
fn register_offset(register: Register, offset: i64) -> Option<[u8; 4]> {
    let opcode = DW_OP_BREG0.checked_add(u8::try_from(register.0).ok()?)?;
    let [first, second, third, _] = i32::try_from(offset).ok()?.to_le_bytes().map(u32::from);
    let bits = first | second << 8 | third << 16;
    let seven = |shift: u32| u8::try_from(bits >> shift & 0x7f).ok();
    Some([opcode, seven(0)? | 0x80, seven(7)? | 0x80, seven(14)?])
}

/// The CFA's expression in entries of the procedure linkage table, as binutils and LLVM write it:
/// `rsp + 8 + ((rip & 15) >= pushed_from) * 8`.
pub(super) const fn linkage_table(pushed_from: u8) -> [u8; 11] {
    const RSP: u8 = DW_OP_BREG0 + 7;
    const RIP: u8 = DW_OP_BREG0 + 16;
    const LIT3: u8 = DW_OP_LIT0 + 3;
    const LIT15: u8 = DW_OP_LIT0 + 15;
    let literal = DW_OP_LIT0 + pushed_from;
    [
        RSP, 8, RIP, 0, LIT15, DW_OP_AND, literal, DW_OP_GE, LIT3, DW_OP_SHL, DW_OP_PLUS,
    ]
}
