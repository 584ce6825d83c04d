//! Code that no call enters: its last instructions show how it was entered.

use unspool_code_analysis::op::ResumePoint;
use unspool_code_analysis::{AbstractState, AbstractValue, Analysis, InsnId};
use unspool_rows::Vaddr;

use super::{AssumedEntry, RowWalk, UNKNOWN_FRAME_BASE};
use crate::declared_row::RuleLocation;
use crate::origin::CodeOrigin;
use crate::row_checker::{Aspect, Verdict};

impl RowWalk<'_, '_> {
    /// Code that resumes what it interrupted was not called. If its rows say that it was, the
    /// instruction suggests how it was entered instead.
    pub(super) fn note_resume(&mut self, at: u64, point: ResumePoint, state: &AbstractState) {
        let abi_info = self.subject.abi_info();
        let (sp, column) = (abi_info.stack_pointer, abi_info.return_address);
        let returns_to = AbstractValue::entry_value(column);
        let cfa = self.subject.row_checker.cfa_value();
        let frame = AbstractValue::symbolic_base(UNKNOWN_FRAME_BASE, 0);
        let mut entered = AbstractState::new();
        entered.set(sp, frame);
        let (target, resumed) = match point {
            ResumePoint::Register {
                address,
                stack_pointer,
            } => {
                entered.set(stack_pointer, cfa);
                entered.set(address, returns_to);
                let target = state.get(address);
                // Nothing has set it since the entry.
                let is_own = target == AbstractValue::entry_value(address);
                let target = if is_own {
                    AbstractValue::UNKNOWN
                } else {
                    target
                };
                (target, state.get(stack_pointer))
            }
            ResumePoint::Stack { stack_pointer_at } => {
                let top = state.get(sp);
                let above = top.distance_from(self.sp_at_begin);
                if let Some(above @ 0..) = above {
                    entered.store(frame.plus(above), returns_to);
                    entered.store(frame.plus(above + i64::from(stack_pointer_at)), cfa);
                }
                let load = |at| state.load(at).unwrap_or(AbstractValue::UNKNOWN);
                let resumed = load(top.plus(stack_pointer_at.into()));
                // If it is not in this frame, an interrupt pushed it.
                match above {
                    Some(0..) if resumed == AbstractValue::UNKNOWN => (resumed, resumed),
                    _ => (load(top), resumed),
                }
            }
            ResumePoint::Elsewhere => (AbstractValue::UNKNOWN, AbstractValue::UNKNOWN),
        };
        self.is_entry_confirmed |= target == returns_to && resumed == cfa;
        let is_described = self
            .declared
            .is_some_and(|row| row.return_address != RuleLocation::Undefined);
        if is_described && target == returns_to && resumed != cfa {
            let verdict = if resumed.is_address() {
                Verdict::Refuted
            } else {
                Verdict::Unproven
            };
            self.note_verdict(at, Aspect::Cfa, verdict, None);
        }
        let is_lost = matches!(target, AbstractValue::UNKNOWN | AbstractValue::FRESH);
        if is_lost && self.has_pushed_return_address() {
            self.note_return_address(at, Verdict::Unproven, None);
        }
        let extent = self.subject.program().extent_at(at);
        if let Some(extent) = extent.filter(|_| target == AbstractValue::UNKNOWN) {
            self.suggested_entry = Some(Box::new(AssumedEntry {
                start: extent.start,
                state: entered,
                jump: None,
            }));
        }
    }

    /// Whether the present row says that the return address is where a call pushes it.
    fn has_pushed_return_address(&self) -> bool {
        let pushed = RuleLocation::return_address_at_entry(self.subject.abi_info());
        self.declared
            .is_some_and(|row| row.return_address == pushed)
    }

    /// A jump to the value that a register had at the entry is a tail call, or a return by a link
    /// register. Code that saves the register, and restores it for the jump, suggests the latter.
    pub(super) fn note_jump_to_register(
        &mut self,
        analysis: &Analysis<'_>,
        at: u64,
        register: u8,
        state: &AbstractState,
    ) {
        let (abi_info, code) = (self.subject.abi_info(), analysis.code());
        let Some(extent) = self.subject.program().extent_at(at) else {
            return;
        };
        let sp = abi_info.stack_pointer;
        let returns_to = AbstractValue::entry_value(abi_info.return_address);
        let cfa = self.subject.row_checker.cfa_value();
        let target = state.get(register);
        self.is_entry_confirmed |= target == returns_to && state.get(sp) == cfa;
        let is_linked = self.linked_jump == Some((at, register));
        if is_linked || target == AbstractValue::entry_value(register) {
            let jump = (Vaddr(extent.start), register);
            self.report.entry_register_jumps.push(jump);
        }
        if is_linked && self.has_pushed_return_address() {
            self.note_return_address(at, Verdict::Unproven, None);
        }
        let may_be_own =
            target == AbstractValue::entry_value(register) || target == AbstractValue::UNKNOWN;
        let is_restored = |insn: InsnId| {
            let mut ops = code.ops_of(insn).iter();
            (extent.start..at).contains(&code.range(insn).start)
                && ops.any(|op| op.written(sp) >> (register & 63) & 1 != 0)
        };
        let may_return = !abi_info.arguments.contains(&register)
            && self.origin == CodeOrigin::HandWritten
            && self.has_pushed_return_address();
        if may_return && may_be_own && code.ids().any(is_restored) {
            let mut entered = AbstractState::new();
            entered.set(sp, cfa);
            entered.set(register, returns_to);
            self.suggested_entry = Some(Box::new(AssumedEntry {
                start: extent.start,
                state: entered,
                jump: Some((at, register)),
            }));
        }
    }

    /// Notes the registers that hold addresses of this unit's code at a jump to another function.
    /// With nothing on the stack, the rows of a tail-called function are right anyway.
    pub(super) fn note_jump_with_address(
        &mut self,
        analysis: &Analysis<'_>,
        to: u64,
        state: &AbstractState,
    ) {
        let sp = analysis.abi_info().stack_pointer;
        if state.get(sp) == AbstractValue::entry_value(sp) {
            return;
        }
        let is_own = |register: &u8| {
            let address = state.get(*register).as_constant();
            address.is_some_and(|address| analysis.insn_at(address).is_some())
        };
        let registers = (0..analysis.abi_info().machine_registers).filter(is_own);
        let registers = registers.fold(0, |all, register| all | 1 << (register & 63));
        if registers != 0 && self.subject.program().starts_function(to) {
            self.report.jumps_with_address.push((Vaddr(to), registers));
        }
    }
}
