//! x86-64.
//!
//! `call` pushes the return address, so at entry the stack pointer is 8 below the CFA. Some twenty
//! mnemonics move stack addresses, saved registers or addresses of jump tables. They have exact
//! operations (`lift.rs`). All others only have write sets (`write_sets.rs`). Writing the low 32
//! bits of a register clears the high ones. Writing 8 or 16 bits preserves the others. Neither
//! leaves an entry value.

use core::ops::Range;

use iced_x86::{FlowControl, Instruction, Mnemonic, Register};

use super::{AbiInfo, DecodedInsn};
use crate::code::LiftedCode;
use crate::op::{Flow, Op, ScanEvent};
use crate::state::SCRATCH;

mod control;
mod fast_decode;
mod fast_transfer;
mod flags;
mod insns;
mod lift;
pub(crate) mod lift_side_effects;
mod operands;
pub(super) mod result_test;
mod write_sets;

use control::{flow, scan_taken_address};
use fast_decode::{FastDecoder, WINDOW_BYTES};
use flags::{LastComparison, comparison, preserves_comparison};
use insns::Insns;
use write_sets::WriteSets;

pub(crate) use fast_decode::X86FastInsn;
use lift::{OpcodeClass, OpcodeClasses, lift_by_class, lift_other_push_pop};
use operands::target;

const RAX: u8 = 0;
const RDX: u8 = 1;
const RCX: u8 = 2;
const RBX: u8 = 3;
const RSI: u8 = 4;
const RDI: u8 = 5;
const RBP: u8 = 6;
const RSP: u8 = 7;

/// System V psABI, "Registers" and "The Stack Frame".
pub(crate) static SYSV_ABI: AbiInfo = AbiInfo {
    stack_pointer: RSP,
    return_address: 16,
    machine_registers: 16,
    result: RAX,
    max_insn_bytes: 15,
    preserved: &[3, RBP, 12, 13, 14, 15],
    // rax rdx rcx rsi rdi r8 r9 r10 r11
    clobbered: 0b1111_0011_0111,
    // rdi rsi rdx rcx r8 r9
    arguments: &[5, 4, 1, 2, 8, 9],
    // xmm0 to xmm15, which no call preserves; the first eight are for arguments.
    vector_registers: 17..33,
    vector_arguments: 17..25,
    frame_pointer: RBP,
    call_pushes: 8,
    // clone, clone3
    stack_switching_syscalls: &[56, 435],
    clone_syscall: 56,
    // CLONE_VM
    share_memory_flag: 0x100,
    // vfork
    stack_sharing_syscalls: &[58],
    // rt_sigreturn, exit, exit_group
    noreturn_syscalls: &[15, 60, 231],
    // x87, SSE, AVX (Intel SDM, volume 1, "Managing State Using the XSAVE Feature Set").
    fixed_xsave_area: (0b111, 832),
    red_zone: 128,
    // lock, and the segments that begin at 0: es, cs, ss, ds
    idle_prefixes: &[0xf0, 0x26, 0x2e, 0x36, 0x3e],
    // int3
    breakpoint: &[0xcc],
    // pause, lfence
    speculation_barriers: &[&[0xf3, 0x90], &[0x0f, 0xae, 0xe8]],
    // mov $15, %rax; syscall: rt_sigreturn.
    sigreturn_code: &[0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05],
};

/// DWARF's numbers of the registers, in the order of the machine's encoding (psABI, "DWARF Register
/// Number Mapping").
const DWARF: [u8; 16] = [RAX, 2, 1, 3, RSP, RBP, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15];

/// The DWARF number of a general-purpose register, or of the register that contains it.
fn number(register: Register) -> Option<u8> {
    if !register.is_gpr() {
        return None;
    }
    let encoded = register.full_register() as usize - Register::RAX as usize;
    DWARF.get(encoded).copied()
}

/// The bit of a register in [`Op::Clobber`].
fn bit(register: u8) -> u64 {
    1_u64.checked_shl(register.into()).unwrap_or(0)
}

/// Decodes, and caches write sets of generic opcodes.
#[derive(Debug, Default)]
pub struct X86Lifter {
    classes: OpcodeClasses,
    write_sets: WriteSets,
    fast_decoder: FastDecoder,
}

impl X86Lifter {
    /// Decodes all of `bytes`, which are at `address`. A byte that does not begin an instruction is
    /// [unknown](Flow::Unknown).
    pub(crate) fn lift(&mut self, bytes: &[u8], address: u64, code: &mut LiftedCode) {
        let mut insns = Insns::new(bytes, address);
        let mut compared = None;
        loop {
            let at = insns.ip();
            match insns.next() {
                None => return,
                Some(None) => code.push(at, 1, Some(Flow::Unknown), true),
                Some(Some(insn)) => {
                    let ops = code.ops();
                    let before = ops.len();
                    let (kind, flow) = self.lift_one(insn, compared, ops);
                    if kind == OpcodeClass::Compare
                        && let Some(now) = comparison(insn)
                    {
                        compared = Some(now);
                    } else if let Some(known) = compared {
                        let written = ops.get(before..).unwrap_or_default();
                        compared = preserves_comparison(insn, written, known).then_some(known);
                    }
                    let length = u8::try_from(insn.len()).unwrap_or(u8::MAX);
                    code.push(at, length, flow, is_padding(kind, flow));
                }
            }
        }
    }

    /// Decodes the first instruction of `bytes` from its first bytes alone; `None` if that is not
    /// enough.
    #[inline(always)]
    pub(crate) fn fast_decode<'b>(&self, bytes: &'b [u8]) -> Option<X86FastInsn<'b>> {
        self.fast_decoder.fast_decode(bytes.first_chunk()?)
    }

    /// Decodes the first instruction of `bytes`, which are at `address`; `None` if there is none.
    #[inline(never)]
    pub(crate) fn decode(
        &mut self,
        bytes: &[u8],
        address: u64,
        ops: &mut Vec<Op>,
    ) -> Option<DecodedInsn> {
        ops.clear();
        let mut insns = Insns::new(bytes.get(..WINDOW_BYTES).unwrap_or(bytes), address);
        let Some(insn) = insns.next()? else {
            return Some(DecodedInsn::UNKNOWN);
        };
        let (kind, flow) = self.lift_one(insn, None, ops);
        Some(DecodedInsn {
            length: insn.len(),
            flow,
            is_padding: is_padding(kind, flow),
        })
    }

    /// Decodes all of `bytes`, which are at `address`. Reports only control flow and taken
    /// addresses, with the address of the instruction.
    pub(crate) fn scan(&mut self, bytes: &[u8], address: u64, mut see: impl FnMut(u64, ScanEvent)) {
        let mut insns = Insns::new(bytes, address);
        let mut goes_on = false;
        loop {
            // Never the last instruction, which decides about fall-through at the end.
            let skipped = self.fast_decoder.skip(insns.rest(), insns.ip(), &mut see);
            insns.skip(skipped);
            let at = insns.ip();
            let Some(insn) = insns.next() else { break };
            let Some(insn) = insn else {
                goes_on = false;
                continue;
            };
            let mut see = |seen| see(at, seen);
            goes_on = matches!(
                insn.flow_control(),
                FlowControl::Next | FlowControl::ConditionalBranch
            ) && !matches!(insn.mnemonic(), Mnemonic::Nop | Mnemonic::Hlt);
            match insn.flow_control() {
                FlowControl::Next => scan_taken_address(insn, &mut see),
                FlowControl::IndirectBranch => {
                    scan_taken_address(insn, &mut see);
                    see(ScanEvent::Flow(Flow::IndirectJump(SCRATCH)));
                }
                control => {
                    if let Some(flow) = flow(insn, control, None) {
                        see(ScanEvent::Flow(flow));
                    }
                }
            }
        }
        if goes_on {
            see(insns.ip(), ScanEvent::FallsThroughEnd);
        }
    }

    /// Decodes all of `bytes`, which are at `address`. Reports each instruction's address, its
    /// control flow, and whether it is padding (see [`LiftedCode::is_padding`]). Branches have no
    /// condition, indirect jumps and calls no register.
    pub(crate) fn outline(
        &mut self,
        bytes: &[u8],
        address: u64,
        mut see: impl FnMut(Range<u64>, Option<Flow>, bool),
    ) {
        let mut insns = Insns::new(bytes, address);
        loop {
            let at = insns.ip();
            if let Some(scan) = self.fast_decoder.scan(insns.rest(), at) {
                insns.skip(scan.length);
                let flow = match scan.event {
                    Some(ScanEvent::Flow(flow)) => Some(flow),
                    _ => None,
                };
                see(at..insns.ip(), flow, scan.is_nop);
                continue;
            }
            match insns.next() {
                None => return,
                Some(None) => see(at..at.wrapping_add(1), Some(Flow::Unknown), true),
                Some(Some(insn)) => {
                    let flow = match insn.flow_control() {
                        FlowControl::IndirectBranch => Some(Flow::IndirectJump(SCRATCH)),
                        control => flow(insn, control, None),
                    };
                    let is_padding = matches!(insn.mnemonic(), Mnemonic::Nop | Mnemonic::Hlt)
                        || flow == Some(Flow::Trap);
                    see(at..insn.next_ip(), flow, is_padding);
                }
            }
        }
    }

    /// Lifts an instruction. Returns its class, and its control flow unless it falls through.
    #[inline(always)]
    fn lift_one(
        &mut self,
        insn: &Instruction,
        comparison: Option<LastComparison>,
        ops: &mut Vec<Op>,
    ) -> (OpcodeClass, Option<Flow>) {
        let kind = self.classes.class_of(insn);
        if kind == OpcodeClass::ControlFlow {
            return (kind, self.lift_flow(insn, comparison, ops));
        }
        if !lift_by_class(kind, insn, ops) {
            let before = ops.len();
            self.write_sets.lift(insn, ops);
            if insn.is_stack_instruction() {
                lift_other_push_pop(insn, before, ops);
            }
        }
        (kind, None)
    }

    /// Lifts an instruction that does more than fall through, with some exceptions. Returns its
    /// control flow.
    fn lift_flow(
        &mut self,
        insn: &Instruction,
        comparison: Option<LastComparison>,
        ops: &mut Vec<Op>,
    ) -> Option<Flow> {
        let control = insn.flow_control();
        match control {
            FlowControl::IndirectBranch => return Some(Flow::IndirectJump(target(insn, ops))),
            FlowControl::IndirectCall => return Some(Flow::IndirectCall(target(insn, ops))),
            _ => {}
        }
        let flow = flow(insn, control, comparison);
        let writes = !matches!(
            flow,
            Some(Flow::Jump(_) | Flow::Call(_) | Flow::Return { .. } | Flow::Resume(_))
        );
        let number = match insn.mnemonic() {
            Mnemonic::Syscall => Some(Some(RAX)),
            // System calls of i386, which have other numbers.
            Mnemonic::Int | Mnemonic::Sysenter => Some(None),
            _ => None,
        };
        // The hypervisor answers in registers that calls do not preserve or, where the manual says
        // so, in all except the stack's (Intel TDX Module ABI).
        match insn.mnemonic() {
            Mnemonic::Vmcall | Mnemonic::Vmmcall | Mnemonic::Vmgexit => ops.push(Op::Clobber {
                registers: SYSV_ABI.clobbered,
            }),
            Mnemonic::Tdcall | Mnemonic::Seamcall => {
                let registers = (0..16).filter(|to| !SYSV_ABI.points_at_frames(*to));
                ops.extend(registers.map(|to| Op::Unknown { to }));
            }
            _ => {}
        }
        if let Some(number) = number {
            // The kernel returns its result in the register with the number. Linux before 4.17
            // cleared r8 to r11 in i386's system calls.
            let cleared = if number.is_none() { 0xf << 8 } else { 0 };
            let registers = bit(RAX) | cleared;
            ops.extend([Op::SystemCall { number }, Op::Clobber { registers }]);
        }
        if writes {
            self.write_sets.lift(insn, ops);
        }
        flow
    }
}

/// Whether an instruction of a class does nothing, or traps.
fn is_padding(class: OpcodeClass, flow: Option<Flow>) -> bool {
    matches!(class, OpcodeClass::Nop | OpcodeClass::Halt) || flow == Some(Flow::Trap)
}
