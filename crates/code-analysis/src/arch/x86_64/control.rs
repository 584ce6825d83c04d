//! Control flow of instructions, and the addresses that they take.

use iced_x86::{Code as Opcode, FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::flags::{LastComparison, branch_condition};
use super::{RCX, RDX, RSP};
use crate::op::{BranchCondition, Flow, ResumePoint, ReturnTarget, ScanEvent};
use crate::state::SCRATCH;

/// The 4- or 8-byte immediate that an instruction puts into a register or memory.
pub(super) fn value(insn: &Instruction) -> Option<u64> {
    let last = insn.op_count().checked_sub(1)?;
    let is_wide = matches!(
        insn.op_kind(last),
        OpKind::Immediate32 | OpKind::Immediate32to64 | OpKind::Immediate64
    );
    let is_moved = matches!(insn.mnemonic(), Mnemonic::Mov | Mnemonic::Push);
    insn.try_immediate(last)
        .ok()
        .filter(|_| is_wide && is_moved)
}

/// Reports the address that an instruction takes, if any.
pub(super) fn scan_taken_address(insn: &Instruction, see: &mut impl FnMut(ScanEvent)) {
    if let Some(value) = value(insn) {
        see(ScanEvent::Immediate(value));
        return;
    }
    if insn.mnemonic() == Mnemonic::Lea && insn.is_ip_rel_memory_operand() {
        see(ScanEvent::AddressTaken(insn.ip_rel_memory_address()));
        return;
    }
    let is_table = insn.memory_base() == Register::None && insn.memory_index_scale() >= 4;
    if is_table && insn.memory_index() != Register::None {
        see(ScanEvent::AddressTaken(insn.memory_displacement64()));
    }
}

/// Control flow of an instruction that is not an indirect jump. Indirect calls have no register.
pub(super) fn flow(
    insn: &Instruction,
    control: FlowControl,
    comparison: Option<LastComparison>,
) -> Option<Flow> {
    match control {
        FlowControl::Next if insn.mnemonic() == Mnemonic::Skinit => {
            Some(Flow::Resume(ResumePoint::Elsewhere))
        }
        FlowControl::Next | FlowControl::IndirectBranch => None,
        FlowControl::UnconditionalBranch => match insn.op0_kind() {
            OpKind::NearBranch64 => Some(Flow::Jump(insn.near_branch_target())),
            _ => Some(Flow::Trap),
        },
        FlowControl::ConditionalBranch => Some(Flow::Branch {
            to: insn.near_branch_target(),
            condition: branch_condition(insn, comparison),
        }),
        FlowControl::Call => match insn.op0_kind() {
            OpKind::NearBranch64 => Some(Flow::Call(insn.near_branch_target())),
            // `syscall` and `vmcall`: the kernel returns here.
            _ => None,
        },
        FlowControl::IndirectCall => Some(Flow::IndirectCall(SCRATCH)),
        FlowControl::Return => Some(returns(insn)),
        FlowControl::Interrupt => (insn.code() == Opcode::Int3).then_some(Flow::Trap),
        FlowControl::XbeginXabortXend => {
            (insn.mnemonic() == Mnemonic::Xbegin).then(|| Flow::Branch {
                to: insn.near_branch_target(),
                condition: BranchCondition::None,
            })
        }
        FlowControl::Exception => Some(Flow::Trap),
    }
}

/// Control flow of an instruction that returns from a call, a system call or an interrupt.
fn returns(insn: &Instruction) -> Flow {
    // Behind the address of a far return: the code segment.
    let segment = match insn.code() {
        Opcode::Retnq | Opcode::Retnq_imm16 => 0,
        Opcode::Retfq | Opcode::Retfq_imm16 => 8,
        _ => return Flow::Resume(resume_point(insn.mnemonic())),
    };
    let arguments = match insn.op_count() {
        0 => 0,
        _ => insn.immediate16(),
    };
    Flow::Return {
        to: ReturnTarget::Stack,
        pops: arguments.saturating_add(segment),
    }
}

/// Where an instruction that returns from no call finds the address (Intel SDM, volume 2, and
/// volume 3, "64-Bit Mode Stack Frame").
fn resume_point(mnemonic: Mnemonic) -> ResumePoint {
    match mnemonic {
        Mnemonic::Sysret | Mnemonic::Sysretq => ResumePoint::Register {
            address: RCX,
            stack_pointer: RSP,
        },
        Mnemonic::Sysexit | Mnemonic::Sysexitq => ResumePoint::Register {
            address: RDX,
            stack_pointer: RCX,
        },
        // The address, the code segment, the flags, the stack pointer.
        Mnemonic::Iretq => ResumePoint::Stack {
            stack_pointer_at: 24,
        },
        // The address, the flags, the stack pointer.
        Mnemonic::Uiret => ResumePoint::Stack {
            stack_pointer_at: 16,
        },
        _ => ResumePoint::Elsewhere,
    }
}
