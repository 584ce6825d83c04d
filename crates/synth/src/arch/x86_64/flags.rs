//! What a conditional branch tells of registers that were compared before it.

use iced_x86::{ConditionCode, FlowControl, Instruction, Mnemonic, OpKind};

use super::operands::{immediate, is_low, whole_source};
use super::{RSP, bit, number};
use crate::op::{Op, Test, Way};

/// A comparison whose flags are still there.
#[derive(Debug, Clone, Copy)]
pub(super) enum Compared {
    /// Two registers.
    Registers(u8, u8),
    /// A register with a number.
    Number(u8, u16),
}

/// What a comparison compares.
pub(super) fn comparison(insn: &Instruction) -> Option<Compared> {
    if insn.op0_kind() != OpKind::Register {
        return None;
    }
    let register = insn.op0_register();
    let a = number(register).filter(|_| is_low(register))?;
    if let Some(b) = whole_source(insn) {
        return Some(Compared::Registers(a, b));
    }
    let limit = immediate(insn, 1)?;
    Some(Compared::Number(a, u16::try_from(limit).ok()?))
}

/// Whether flags and operands of a comparison are still what they were, behind an instruction that did
/// this.
pub(super) fn keeps(insn: &Instruction, written: &[Op], compared: Compared) -> bool {
    let leaves_flags = matches!(
        insn.mnemonic(),
        Mnemonic::Mov
            | Mnemonic::Lea
            | Mnemonic::Movzx
            | Mnemonic::Movsxd
            | Mnemonic::Push
            | Mnemonic::Pop
            | Mnemonic::Nop
    ) || insn.flow_control() == FlowControl::ConditionalBranch;
    let written = written.iter().fold(0, |all, op| all | op.written(RSP));
    let writes = |register: u8| written & bit(register) != 0;
    leaves_flags
        && match compared {
            Compared::Registers(a, b) => !writes(a) && !writes(b),
            Compared::Number(a, _) => !writes(a),
        }
}

/// What a conditional branch behind a comparison tells.
pub(super) fn test(insn: &Instruction, compared: Option<Compared>) -> Test {
    let at_most = |register, limit, when| Test::AtMost {
        register,
        limit,
        when,
    };
    match (insn.condition_code(), compared) {
        (ConditionCode::e, Some(Compared::Registers(a, b))) => Test::Equal {
            a,
            b,
            when: Way::Taken,
        },
        (ConditionCode::ne, Some(Compared::Registers(a, b))) => Test::Equal {
            a,
            b,
            when: Way::On,
        },
        (ConditionCode::a, Some(Compared::Number(a, limit))) => at_most(a, limit, Way::On),
        (ConditionCode::be, Some(Compared::Number(a, limit))) => at_most(a, limit, Way::Taken),
        (ConditionCode::ae, Some(Compared::Number(a, limit @ 1..))) => {
            at_most(a, limit - 1, Way::On)
        }
        (ConditionCode::b, Some(Compared::Number(a, limit @ 1..))) => {
            at_most(a, limit - 1, Way::Taken)
        }
        _ => Test::None,
    }
}
