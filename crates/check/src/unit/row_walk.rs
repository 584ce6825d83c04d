//! The walk along a unit's instructions with their rows.

use core::ops::Range;
use std::borrow::Cow;

use unspool_code_analysis::dataflow::VisitFilter;
use unspool_code_analysis::op::Flow;
use unspool_code_analysis::{
    AbstractState, AbstractValue, Analysis, InsnId, ReturnBehavior, ValueFact,
};
use unspool_rows::Vaddr;
use unspool_synthesis::ElfCodeImage;

use super::control_flow::LazyControlFlow;
use super::premises::{AssumedEntry, Premises};
use super::{CheckedRow, Discrepancy, UnitReport};
use crate::declared_row::{DeclaredRow, RuleLocation};
use crate::hint;
use crate::origin::CodeOrigin;
use crate::row_checker::{Aspect, RowVerdicts, Verdict};
use crate::subject::CheckSubject;

/// Walks a unit's instructions and rows together.
pub(super) struct RowWalk<'w, 's> {
    pub(super) subject: &'w CheckSubject<'s>,
    pub(super) control_flow: LazyControlFlow<'w, 's>,
    pub(super) report: &'w mut UnitReport,
    /// Starts of the unit's extents, ascending.
    pub(super) starts: Vec<u64>,
    /// Their ends.
    pub(super) ends: Vec<u64>,
    /// Index of the current row.
    pub(super) row: usize,
    /// Start of its extent.
    pub(super) begin: u64,
    /// End of its extent.
    pub(super) end: u64,
    /// The stack pointer at that start. Symbolic ones have other names elsewhere.
    pub(super) sp_at_begin: AbstractValue,
    /// Start of the next row, or the extent's end.
    pub(super) row_end: u64,
    /// The declared form of the row.
    pub(super) declared: Option<&'w DeclaredRow>,
    /// The parts of a state that it depends on.
    pub(super) reads: u64,
    /// The write set since the row was checked.
    pub(super) unchecked_writes: u64,
    /// The addresses of the last instruction.
    pub(super) last: Range<u64>,
    /// The instructions, ascending, that only guesses reach: nothing is refuted there.
    pub(super) guessed_insns: &'w [u64],
    /// A jump that may be a return to a register, and the register.
    pub(super) linked_jump: Option<(u64, u8)>,
    /// How a function may be entered, if not as by a call.
    pub(super) suggested_entry: Option<Box<AssumedEntry>>,
    /// Whether control goes back to where it came from otherwise than by a return.
    pub(super) is_entry_confirmed: bool,
    /// Origin of the unit.
    pub(super) origin: CodeOrigin,
    /// Whether jumps to other functions matter: to their rows, or to the callers of this one.
    pub(super) follows_jumps: bool,
    /// Words of the caller's frame that are written, as in [`ReturnBehavior::Registers`].
    pub(super) caller_words: u64,
}

impl<'w, 's> RowWalk<'w, 's> {
    pub(super) fn new(
        subject: &'w CheckSubject<'s>,
        unit: usize,
        premises: &'w Premises,
        report: &'w mut UnitReport,
    ) -> RowWalk<'w, 's> {
        let extents = subject.program().unit(unit);
        let (starts, ends) = extents.map(|extent| (extent.start, extent.end)).unzip();
        let origin = subject.origin_of_unit(unit);
        let mut walk = RowWalk {
            subject,
            control_flow: LazyControlFlow::new(subject, unit, premises),
            starts,
            ends,
            report,
            row: 0,
            begin: 0,
            end: 0,
            sp_at_begin: AbstractValue::UNKNOWN,
            row_end: 0,
            declared: None,
            reads: 0,
            unchecked_writes: 0,
            last: 0..0,
            guessed_insns: &premises.unreached,
            linked_jump: None,
            suggested_entry: None,
            is_entry_confirmed: false,
            origin,
            follows_jumps: origin == CodeOrigin::HandWritten || subject.program().breaks_abi(),
            caller_words: 0,
        };
        walk.read_row();
        walk
    }

    /// Visits an instruction that may have a finding; returns which one is the next.
    pub(super) fn visit_insn(
        &mut self,
        analysis: &Analysis<'_>,
        insn: InsnId,
        state: &AbstractState,
        written: u64,
    ) -> VisitFilter {
        let code = analysis.code();
        let (range, flow) = (code.range(insn), code.flow(insn));
        self.unchecked_writes |= written;
        self.find_row(range.start);
        if range.start == self.begin {
            self.sp_at_begin = state.get(self.subject.abi_info().stack_pointer);
        }
        let is_guess = self.guessed_insns.binary_search(&range.start).is_ok();
        if !is_guess {
            self.visit_flow(analysis, insn, state);
        }
        // While the callee runs, the row of the call describes this function, too.
        let is_call = flow.is_some_and(Flow::is_call);
        let across = (self.declared)
            .filter(|row| is_call && self.subject.depends_on_callee(row, state))
            .map(|_| analysis.state_during_call(state));
        if self.unchecked_writes & self.reads != 0 || across.is_some() {
            self.unchecked_writes = 0;
            let worst = if is_guess {
                Verdict::Unproven
            } else {
                Verdict::Refuted
            };
            let mut check = |state: &AbstractState| {
                let target = (&self.control_flow, &mut *self.report);
                self.subject
                    .check_row(self.row, state, range.start, worst, target);
                self.report.discrepancies.len()
            };
            let before = check(state);
            if let Some(state) = &across {
                check(state);
                self.note_call(before);
            }
        }
        self.last = range;
        VisitFilter {
            written: self.reads,
            end: self.row_end,
            calls: self.reads & self.subject.abi_info().clobbered != 0,
            jumps: self.follows_jumps,
        }
    }

    /// Adds hints to discrepancies, from an index on, that only exist while a callee runs.
    fn note_call(&mut self, from: usize) {
        let discrepancies = self
            .report
            .discrepancies
            .get_mut(from..)
            .unwrap_or_default();
        if let Some(declared) = self.declared {
            hint::note_clobbered(&self.subject.row_checker, declared, discrepancies);
        }
    }

    /// Visits the control flow of an instruction.
    fn visit_flow(&mut self, analysis: &Analysis<'_>, insn: InsnId, state: &AbstractState) {
        let code = analysis.code();
        let (range, flow) = (code.range(insn), code.flow(insn));
        if let Some(flow) = flow {
            self.note_flow(range.start, flow, state);
        }
        if let Some(Flow::IndirectJump(register)) = flow
            && register < self.subject.abi_info().machine_registers
        {
            self.note_jump_to_register(analysis, range.start, register, state);
        }
        if let Some(Flow::Return { to, .. }) = flow {
            self.check_unrestored(range.start, to, state);
        }
        let goes_on = matches!(flow, None | Some(Flow::Branch { .. }));
        if goes_on && self.is_outside(range.end) && !analysis.is_noreturn_syscall(insn, state) {
            self.report
                .fall_through_ends
                .push([range.start, range.end].map(Vaddr));
        }
        if analysis.is_overlapping_jump(insn) {
            self.report.unknown_insns.push(Vaddr(range.start));
        }
        let is_hand_written = self.origin == CodeOrigin::HandWritten;
        if self.follows_jumps || is_hand_written {
            let jump = self.jump(analysis, insn, state);
            if let Some((target, state)) = jump.as_ref().filter(|_| self.follows_jumps) {
                self.note_tail_call(analysis, insn, *target, state);
            }
            if let Some((target, state)) = jump.as_ref().filter(|_| is_hand_written) {
                self.visit_jump_target(analysis, insn, *target, state);
            }
        }
        if is_hand_written {
            self.visit_successor_functions(analysis, insn, state);
        }
    }

    /// Where a jump leads, and the state there. A return to an address that the code has pushed is
    /// a jump.
    fn jump<'a>(
        &self,
        analysis: &Analysis<'_>,
        insn: InsnId,
        state: &'a AbstractState,
    ) -> Option<(AbstractValue, Cow<'a, AbstractState>)> {
        let abi_info = analysis.abi_info();
        Some(match analysis.code().flow(insn)? {
            Flow::Jump(to) | Flow::Branch { to, .. } => {
                (AbstractValue::constant(to), Cow::Borrowed(state))
            }
            Flow::IndirectJump(register) => {
                let target = analysis.state_after(insn, state).get(register);
                (target, Cow::Borrowed(state))
            }
            Flow::Return { to, pops } => {
                let target = abi_info.return_target(to, state);
                let target = target.filter(|target| target.as_constant().is_some())?;
                let mut popped = state.clone();
                let sp = state.get(abi_info.stack_pointer);
                let bytes = i64::from(abi_info.call_pushes) + i64::from(pops);
                popped.set(abi_info.stack_pointer, sp.plus(bytes));
                (target, Cow::Owned(popped))
            }
            _ => return None,
        })
    }

    /// Notes an exit by an instruction.
    fn note_flow(&mut self, at: u64, flow: Flow, state: &AbstractState) {
        let abi_info = self.subject.abi_info();
        let sp = abi_info.stack_pointer;
        let exit = match flow {
            Flow::Return { to, pops } => {
                let lost = self.subject.unrestored_registers(state);
                let lost = lost & !self.subject.unpreserved_at(at);
                self.report.unrestored_at_returns.push((Vaddr(at), lost));
                let target = abi_info.return_target(to, state);
                let left = state.get(sp).plus(abi_info.call_pushes.into());
                self.exit(
                    target.unwrap_or(AbstractValue::UNKNOWN),
                    state,
                    left.plus(pops.into()),
                )
            }
            // The return address was popped.
            Flow::IndirectJump(register) => self.exit(state.get(register), state, state.get(sp)),
            Flow::Resume(point) => {
                self.note_resume(at, point, state);
                None
            }
            Flow::Unknown => {
                self.report.unknown_insns.push(Vaddr(at));
                None
            }
            _ => return,
        };
        match exit {
            Some(exit) => self.report.exits.push((Vaddr(at), exit)),
            None => self.report.other_exits.push(Vaddr(at)),
        }
    }

    /// Notes that the return address is not, or may not be, where the present row says.
    pub(super) fn note_return_address(
        &mut self,
        at: u64,
        verdict: Verdict,
        actual: Option<RuleLocation>,
    ) {
        self.note_verdict(at, Aspect::ReturnAddress, verdict, actual);
    }

    /// Notes that the CFA or the return address is not, or may not be, what the present row says.
    pub(super) fn note_verdict(
        &mut self,
        at: u64,
        aspect: Aspect,
        verdict: Verdict,
        actual: Option<RuleLocation>,
    ) {
        let Some(row) = self.report.rows.get_mut(self.row) else {
            return;
        };
        let mut known = row.verdicts.unwrap_or(RowVerdicts::PROVEN);
        let place = match aspect {
            Aspect::Cfa => &mut known.cfa,
            _ => &mut known.return_address,
        };
        *place = verdict.max(*place);
        row.verdicts = Some(known);
        self.report.discrepancies.push(Discrepancy {
            address: Vaddr(at),
            row: row.row,
            aspect,
            verdict,
            actual,
            hint: None,
        });
    }

    /// Visits what a jump leads to.
    fn visit_jump_target(
        &mut self,
        analysis: &Analysis<'_>,
        insn: InsnId,
        target: AbstractValue,
        state: &AbstractState,
    ) {
        let (range, flow) = (analysis.code().range(insn), analysis.code().flow(insn));
        if flow.and_then(Flow::jump_target).is_none() {
            self.note_indirect_targets(range.start, target);
        } else if let Some(to) = target.as_constant() {
            self.note_jump_with_address(analysis, to, state);
        }
        let pointed_to = || self.subject.pointed_to(target);
        if let Some(to) = target.as_constant().or_else(pointed_to) {
            self.check_entry_with_frame(analysis, &range, to, state);
        }
    }

    /// Visits the functions that an instruction continues in otherwise than by a jump.
    fn visit_successor_functions(
        &mut self,
        analysis: &Analysis<'_>,
        insn: InsnId,
        state: &AbstractState,
    ) {
        let code = analysis.code();
        let (range, flow) = (code.range(insn), code.flow(insn));
        let may_return = || {
            let behind = analysis.state_after(insn, state);
            analysis.behavior_of_call(insn, &behind) != Some(ReturnBehavior::Never)
        };
        if flow.is_some_and(Flow::is_call) && self.is_outside(range.end) && may_return() {
            self.report.ends_behind_calls.push(Vaddr(range.end));
        }
        let goes_on = matches!(flow, None | Some(Flow::Branch { .. }));
        if !goes_on || range.end < self.end {
            return;
        }
        self.report.other_exits.push(Vaddr(range.start));
        if !code.is_padding(insn) {
            let behind = analysis.state_after(insn, state);
            let returns = self.subject.program().returns(range.end);
            self.note_exit_to(analysis, insn, (Some(range.end), returns), &behind);
            self.check_entry_with_frame(analysis, &range, range.end, &behind);
        }
    }

    /// Whether a jump leads through a table to instructions of the unit.
    pub(super) fn leads_inside(&self, analysis: &Analysis<'_>, target: AbstractValue) -> bool {
        let ValueFact::TableTarget(table) = target.fact() else {
            return false;
        };
        let image = ElfCodeImage(self.subject.file());
        let mut targets = self.subject.program().jump_table_targets(table, &image);
        table.max_index != Some(0) && targets.any(|to| analysis.insn_at(to).is_some())
    }

    /// Notes known targets of an indirect jump that are in no entry, or in other units.
    fn note_indirect_targets(&mut self, from: u64, target: AbstractValue) {
        let image = ElfCodeImage(self.subject.file());
        let program = self.subject.program();
        let targets = match target.fact() {
            ValueFact::Constant(to) => vec![to],
            ValueFact::TableTarget(table) if table.max_index.is_some() => {
                program.jump_table_targets(table, &image).collect()
            }
            _ => return,
        };
        for to in targets {
            let unit = program.unit_of(to);
            if unit.is_none() {
                self.report.targets_outside.push(Vaddr(to));
            } else if unit != program.unit_of(from) && !program.is_call_target(to) {
                self.report.indirect_edges.push([from, to].map(Vaddr));
            }
        }
    }

    /// A jump into another function with something on the stack contradicts its first row, unless
    /// the row counts it.
    fn check_entry_with_frame(
        &mut self,
        analysis: &Analysis<'_>,
        from: &Range<u64>,
        to: u64,
        state: &AbstractState,
    ) {
        let (abi_info, program) = (self.subject.abi_info(), self.subject.program());
        let sp = abi_info.stack_pointer;
        let is_own = program.index_containing(to) == program.index_containing(from.start);
        if is_own || !program.starts_function(to) || self.subject.link_register(to).is_some() {
            return;
        }
        let is_call = analysis.pushed_return_target(state).is_some();
        let pushed = AbstractValue::entry_value(sp).distance_from(state.get(sp));
        let Some(pushed @ 1..) = pushed.filter(|_| !is_call) else {
            return;
        };
        let Some((row, declared)) = self.subject.first_row(to) else {
            return;
        };
        let real = pushed + i64::from(abi_info.call_pushes);
        if matches!(declared.cfa, RuleLocation::Register(register, offset) if register == sp && offset != real)
        {
            self.report.discrepancies.push(Discrepancy {
                address: Vaddr(to),
                row,
                aspect: Aspect::Cfa,
                verdict: Verdict::Refuted,
                actual: Some(RuleLocation::Register(sp, real)),
                hint: None,
            });
            self.report.entered_with_frame.push((Vaddr(to), real));
            if from.end != to {
                let jump = [from.start, to].map(Vaddr);
                self.report.jumps_with_frame.push(jump);
            }
        }
    }

    /// A row that declares no caller is wrong where control gets to a return to one.
    pub(super) fn refute_rows_without_caller(&mut self) {
        let subject = self.subject;
        let is_outermost = |row: &CheckedRow| {
            let declared = subject.row_checker.declared(row.row);
            let declared = declared.filter(|_| row.verdicts.is_some());
            declared.is_some_and(|row| row.return_address == RuleLocation::Undefined)
        };
        if self.report.exits.is_empty() || !self.report.rows.iter().any(is_outermost) {
            return;
        }
        let actual = RuleLocation::return_address_at_entry(subject.abi_info());
        let mut last = None;
        for at in self.control_flow.get().to_caller.clone() {
            let behind = self.report.rows.partition_point(|row| row.start.0 <= at);
            let Some(index) = behind.checked_sub(1).filter(|index| last != Some(*index)) else {
                continue;
            };
            last = Some(index);
            if self.report.rows.get(index).is_some_and(is_outermost) {
                self.row = index;
                self.note_return_address(at, Verdict::Refuted, Some(actual));
            }
        }
    }

    /// Finds the row of the instruction at an address.
    fn find_row(&mut self, at: u64) {
        while let Some(next) = self.report.rows.get(self.row + 1)
            && next.start.0 <= at
        {
            let is_inside = self.last.start < next.start.0 && next.start.0 < self.last.end;
            if is_inside && !self.subject.is_replaced {
                self.report.misaligned_rows.push(next.start);
            }
            self.row += 1;
            self.read_row();
        }
    }

    fn read_row(&mut self) {
        let rows = &self.report.rows;
        let row = rows.get(self.row);
        self.declared = row.and_then(|row| self.subject.row_checker.declared(row.row));
        self.reads = self.declared.map_or(0, |row| row.reads);
        self.unchecked_writes = u64::MAX;
        let next = rows.get(self.row + 1).map_or(u64::MAX, |next| next.start.0);
        let start = row.map_or(0, |row| row.start.0);
        let end = self.ends.partition_point(|end| *end <= start);
        self.begin = self.starts.get(end).map_or(0, |start| *start);
        self.end = self.ends.get(end).map_or(0, |end| *end);
        self.row_end = next.min(self.end);
    }

    /// Whether an instruction that ends at an address is the last of its extent, and no other
    /// extent follows.
    pub(super) fn is_outside(&self, at: u64) -> bool {
        at >= self.end && self.subject.program().index_containing(at).is_none()
    }
}
