//! Facts that a conditional branch implies for registers compared before it.

use iced_x86::{ConditionCode, FlowControl, Instruction, Mnemonic, OpKind};

use super::operands::{immediate, is_low, whole_source};
use super::{RSP, bit, number};
use crate::op::{BranchCondition, BranchEdge, Op};

/// A comparison with flags that are still valid.
#[derive(Debug, Clone, Copy)]
pub(super) enum LastComparison {
    /// Two registers.
    Registers(u8, u8),
    /// A register with an immediate.
    Number(u8, u16),
}

/// Operands of a comparison.
pub(super) fn comparison(insn: &Instruction) -> Option<LastComparison> {
    if insn.op0_kind() != OpKind::Register {
        return None;
    }
    let register = insn.op0_register();
    let a = number(register).filter(|_| is_low(register))?;
    if let Some(b) = whole_source(insn) {
        return Some(LastComparison::Registers(a, b));
    }
    let limit = immediate(insn, 1)?;
    Some(LastComparison::Number(a, u16::try_from(limit).ok()?))
}

/// Whether an instruction with these effects preserves the flags and operands of a comparison.
pub(super) fn preserves_comparison(
    insn: &Instruction,
    written: &[Op],
    comparison: LastComparison,
) -> bool {
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
        && match comparison {
            LastComparison::Registers(a, b) => !writes(a) && !writes(b),
            LastComparison::Number(a, _) => !writes(a),
        }
}

/// The condition of a conditional branch after a comparison.
pub(super) fn branch_condition(
    insn: &Instruction,
    comparison: Option<LastComparison>,
) -> BranchCondition {
    let at_most = |register, limit, when| BranchCondition::AtMost {
        register,
        limit,
        holds_on: when,
    };
    match (insn.condition_code(), comparison) {
        (ConditionCode::e, Some(LastComparison::Registers(a, b))) => BranchCondition::Equal {
            a,
            b,
            holds_on: BranchEdge::Taken,
        },
        (ConditionCode::ne, Some(LastComparison::Registers(a, b))) => BranchCondition::Equal {
            a,
            b,
            holds_on: BranchEdge::FallThrough,
        },
        (ConditionCode::a, Some(LastComparison::Number(a, limit))) => {
            at_most(a, limit, BranchEdge::FallThrough)
        }
        (ConditionCode::be, Some(LastComparison::Number(a, limit))) => {
            at_most(a, limit, BranchEdge::Taken)
        }
        (ConditionCode::ae, Some(LastComparison::Number(a, limit @ 1..))) => {
            at_most(a, limit - 1, BranchEdge::FallThrough)
        }
        (ConditionCode::b, Some(LastComparison::Number(a, limit @ 1..))) => {
            at_most(a, limit - 1, BranchEdge::Taken)
        }
        _ => BranchCondition::None,
    }
}
