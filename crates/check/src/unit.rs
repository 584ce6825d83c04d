//! Checks the rows of some functions, instruction by instruction.

use core::ops::Range;

use unspool_code_analysis::op::{Flow, Op, UNBOUNDED};
use unspool_code_analysis::program::CodeImage as _;
use unspool_code_analysis::value::{JumpTable, JumpTableEncoding};
use unspool_code_analysis::{
    AbstractState, AbstractValue, Analysis, Analyzer, InsnId, LiftedCode, ReturnBehavior,
    StackHeightConflict, ValueFact,
};
use unspool_rows::{RowId, Vaddr};
use unspool_synthesis::ElfCodeImage;

use crate::declared_row::{DeclaredRow, RuleLocation};
use crate::hint::{self, Hint};
use crate::origin::CodeOrigin;
use crate::row_checker::{Aspect, RowChecker, RowVerdicts, Verdict};
use crate::subject::CheckSubject;
use crate::unit_checker::UnitChecker;

mod computed_stores;
mod control_flow;
mod exits;
mod premises;
mod report;
mod row_walk;
mod uncalled;

use control_flow::LazyControlFlow;
use exits::register_set;
use premises::{AssumedEntry, EntryPremise, Premises};
use row_walk::RowWalk;

pub(crate) use premises::TableAssumptions;
pub use report::{CheckedRow, Discrepancy, HeightConflict, JoiningPath, UnitReport};

/// Stands for a stack pointer at an entry that is at no known distance from the caller's. Other bases
/// have the numbers of instructions.
pub(crate) const UNKNOWN_FRAME_BASE: u32 = (1 << 25) - 1;

impl CheckSubject<'_> {
    /// Checks the rows of a unit of the program.
    #[must_use]
    pub fn check_unit(&self, unit_checker: &mut UnitChecker, unit: usize) -> UnitReport {
        let rows = self.rows_of(unit);
        // Callers may rely on preserved registers: hand-written code must be known.
        let left = match self.origin_of_unit(unit) {
            CodeOrigin::HandWritten => rows,
            // The verifier knows the psABI's convention only.
            CodeOrigin::Compiler if self.has_own_convention(&rows) => rows,
            CodeOrigin::Compiler => match self.verify_unit(unit_checker, unit, rows) {
                Ok(report) => return report,
                Err(rows) => rows,
            },
        };
        self.check_unit_by_dataflow(&mut unit_checker.analyzer, unit, &left)
    }

    /// Whether rows are those of code with another calling convention than the psABI's.
    fn has_own_convention(&self, rows: &[CheckedRow]) -> bool {
        rows.first()
            .is_some_and(|row| self.convention_at(row.start.0).is_some())
    }

    /// The same by the dataflow analysis.
    pub(crate) fn check_unit_by_dataflow(
        &self,
        analyzer: &mut Analyzer,
        unit: usize,
        rows: &[CheckedRow],
    ) -> UnitReport {
        let mut premises = Premises::default();
        loop {
            let (report, next) =
                self.check_unit_with_premises(analyzer, unit, rows.to_vec(), &premises);
            match next {
                Some(next) => premises = next,
                None => return report,
            }
        }
    }

    /// Checks the rows of a unit that another function continues in: with the CFA at this distance
    /// above the stack pointer, and otherwise as its first row says.
    pub(crate) fn check_unit_entered_with_frame(
        &self,
        analyzer: &mut Analyzer,
        at: Vaddr,
        cfa: i64,
    ) -> UnitReport {
        let Some(unit) = self.program().unit_of(at.0) else {
            return UnitReport::default();
        };
        let begin = self.first_row(at.0).and_then(|(_, declared)| {
            let cfa = RuleLocation::Register(self.abi_info().stack_pointer, cfa);
            self.row_checker
                .entry_state(&DeclaredRow { cfa, ..*declared })
        });
        let premises = Premises {
            entry: match begin {
                Some(state) => EntryPremise::Assumed(Box::new(AssumedEntry {
                    start: at.0,
                    state,
                    jump: None,
                })),
                None => EntryPremise::AsCalled,
            },
            ..Premises::default()
        };
        self.check_unit_with_premises(analyzer, unit, self.rows_of(unit), &premises)
            .0
    }

    /// Checks the rows of a unit on premises that the code does not show. Also returns better ones,
    /// if the result suggests any.
    fn check_unit_with_premises(
        &self,
        analyzer: &mut Analyzer,
        unit: usize,
        rows: Vec<CheckedRow>,
        premises: &Premises,
    ) -> (UnitReport, Option<Premises>) {
        let guide = TableAssumptions::new(self, unit, &rows).with_premises(premises);
        let analysis = self.analyze(analyzer, unit, &guide);
        let code = analysis.code();
        let path = |from: InsnId, sp: AbstractValue| JoiningPath {
            from: Vaddr(code.range(from).start),
            is_call: code.flow(from).is_some_and(Flow::is_call),
            cfa: self.row_checker.cfa_value().distance_from(sp),
        };
        let height_conflict = |conflict: &StackHeightConflict| HeightConflict {
            at: Vaddr(code.range(conflict.at).start),
            paths: [
                path(conflict.first_from, conflict.first),
                path(conflict.other_from, conflict.other),
            ],
        };
        let mut report = UnitReport {
            conflicts: analysis.conflicts().iter().map(height_conflict).collect(),
            rows,
            assumes_bounds: analysis.assumes_bounds(),
            is_given_up: analysis.is_given_up(),
            ..UnitReport::default()
        };
        let next_entry = self.check_rows(unit, &analysis, premises, &mut report);
        if report.is_given_up || !report.unknown_insns.is_empty() {
            report.leave_open();
        }
        let origin = self.origin_of_unit(unit);
        if origin == CodeOrigin::HandWritten {
            report.assumed_noreturn = self.assumed_noreturn(&analysis, &report.rows);
            report.assumes_bounds |= self.has_computed_stores(&analysis);
            self.refute_rejected_jumps(&analysis, &mut report);
            self.refute_at_height_conflicts(&mut report);
            report
                .other_exits
                .extend(self.jumps_out_of_extents(analysis.code()));
        }
        let is_known = origin == CodeOrigin::HandWritten
            && self.lines.is_some()
            && !report.unreached.is_empty()
            && premises.unreached.is_empty();
        let next = match next_entry {
            Some(entry) => Some(Premises {
                entry,
                ..Premises::default()
            }),
            None => is_known.then(|| Premises {
                entry: premises.entry.clone(),
                ..self.unreached_code(&analysis)
            }),
        };
        (report, next)
    }

    /// The calls that are assumed not to return, since the rows behind them contradict them.
    fn assumed_noreturn(&self, analysis: &Analysis<'_>, rows: &[CheckedRow]) -> Vec<Vaddr> {
        let code = analysis.code();
        let calls = analysis.rejected_edges().filter(|(call, behind, state)| {
            let is_call = code.flow(*call).is_some_and(Flow::is_call);
            let declared = self
                .row_checker
                .declared_in(rows, code.range(*behind).start);
            is_call
                && declared.is_some_and(|declared| {
                    self.row_checker.check_cfa(declared, state) == Verdict::Refuted
                })
        });
        calls
            .map(|(call, ..)| Vaddr(code.range(call).start))
            .collect()
    }

    /// No row relative to the stack pointer is right at a join of different stack heights.
    fn refute_at_height_conflicts(&self, report: &mut UnitReport) {
        let sp = self.abi_info().stack_pointer;
        let counts = |row| {
            let declared = self.row_checker.declared(row);
            declared.is_some_and(|declared| declared.cfa.is_relative_to(sp))
        };
        let discrepancies = report.discrepancies.iter();
        let of_cfa = discrepancies
            .filter(|discrepancy| discrepancy.aspect == Aspect::Cfa && counts(discrepancy.row));
        for discrepancy in of_cfa {
            let behind = report
                .rows
                .partition_point(|row| row.start <= discrepancy.address);
            let row = behind
                .checked_sub(1)
                .and_then(|row| report.rows.get_mut(row));
            let mut conflicts = report.conflicts.iter();
            if let Some(known) = row.and_then(|row| row.verdicts.as_mut())
                && conflicts.any(|conflict| conflict.at == discrepancy.address)
            {
                known.cfa = Verdict::Refuted;
            }
        }
    }

    /// A part's first row holds on another path to it. A jump that contradicts it comes from code
    /// that is entered otherwise than its rows say.
    fn refute_rejected_jumps(&self, analysis: &Analysis<'_>, report: &mut UnitReport) {
        let (code, sp) = (analysis.code(), self.abi_info().stack_pointer);
        for (jump, target, state) in analysis.rejected_edges() {
            let [at, target] = [jump, target].map(|insn| code.range(insn).start);
            let is_jump = matches!(code.flow(jump), Some(Flow::Jump(_) | Flow::Branch { .. }));
            let declared = self.row_checker.declared_in(&report.rows, target);
            let Some(declared) = declared.filter(|declared| {
                is_jump && self.row_checker.check_cfa(declared, state) == Verdict::Refuted
            }) else {
                continue;
            };
            let actual = Some(declared.cfa).filter(|cfa| cfa.is_relative_to(sp));
            let behind = report.rows.partition_point(|row| row.start.0 <= at);
            let place = behind.checked_sub(1);
            if let Some(row) = place.and_then(|place| report.rows.get_mut(place)) {
                let known = row.verdicts.unwrap_or(RowVerdicts::PROVEN);
                row.verdicts = Some(RowVerdicts {
                    cfa: Verdict::Refuted,
                    ..known
                });
                report.discrepancies.push(Discrepancy {
                    address: Vaddr(at),
                    row: row.row,
                    aspect: Aspect::Cfa,
                    verdict: Verdict::Refuted,
                    actual,
                    hint: None,
                });
            }
        }
    }

    /// Starts of unreached code that is not data.
    fn unreached_code(&self, analysis: &Analysis<'_>) -> Premises {
        let code = analysis.code();
        let mut guesses = Premises::default();
        let mut last = (0..0, false);
        for insn in analysis.unreached() {
            let range = code.range(insn);
            let is_code = !code.is_padding(insn) && !self.is_data(&last.0, &range);
            let begins = !(last.1 && last.0.end == range.start);
            if is_code && begins && !self.pushes_first(analysis, insn) {
                guesses.targets.push(range.start);
            }
            guesses.unreached.push(range.start);
            last = (range, is_code);
        }
        guesses
    }

    /// Whether code pushes something before it jumps elsewhere: a jump may lead behind a part of
    /// that.
    fn pushes_first(&self, analysis: &Analysis<'_>, first: InsnId) -> bool {
        let (code, sp) = (analysis.code(), self.abi_info().stack_pointer);
        let pushes = |op: &Op| matches!(*op, Op::Add { to, bytes, .. } if to == sp && bytes < 0);
        let line = code.ids().skip(first.0 as usize);
        let mut line = line.take_while(|insn| code.flow(*insn).is_none());
        line.any(|insn| code.ops_of(insn).iter().any(pushes))
    }

    /// Analyzes a unit of the program. Where the code alone does not show whether control reaches
    /// an address, a compiler's rows are assumed.
    pub fn analyze_unit<'a>(&'a self, analyzer: &'a mut Analyzer, unit: usize) -> Analysis<'a> {
        let rows = self.rows_of(unit);
        self.analyze(analyzer, unit, &TableAssumptions::new(self, unit, &rows))
    }

    pub(crate) fn analyze<'a>(
        &'a self,
        analyzer: &'a mut Analyzer,
        unit: usize,
        guide: &TableAssumptions<'_>,
    ) -> Analysis<'a> {
        let (landings, image) = (self.landings(unit), ElfCodeImage(self.file()));
        analyzer.analyze(self.program(), &image, unit, &landings, guide)
    }

    /// The rows of a unit, unchecked.
    pub(crate) fn rows_of(&self, unit: usize) -> Vec<CheckedRow> {
        let extents = self.program().unit(unit);
        let mut rows = Vec::new();
        for (_, fde) in extents.filter_map(|extent| self.fde_of(&extent)) {
            rows.extend(self.table().rows(fde).map(|row| CheckedRow {
                start: row.start,
                row: row.row,
                verdicts: None,
            }));
        }
        rows
    }

    /// Checks the row of each instruction where it or something that it depends on has changed.
    /// Returns a better premise about the entry, if the code suggests one.
    fn check_rows(
        &self,
        unit: usize,
        analysis: &Analysis<'_>,
        premises: &Premises,
        report: &mut UnitReport,
    ) -> Option<EntryPremise> {
        let mut walk = RowWalk::new(self, unit, premises, report);
        if walk.origin == CodeOrigin::HandWritten {
            walk.caller_words = self.caller_words(analysis);
        }
        walk.linked_jump = match premises.entry {
            EntryPremise::PerhapsLinked(jump, register) => Some((jump, register)),
            _ => None,
        };
        analysis
            .visit_filtered(|insn, state, written| walk.visit_insn(analysis, insn, state, written));
        let (suggested, is_confirmed) = (walk.suggested_entry.take(), walk.is_entry_confirmed);
        walk.refute_rows_without_caller();
        self.note_unreached(analysis, report);
        let returns = |start: u64| {
            let extent = |at: &Vaddr| self.program().extent_at(at.0);
            let mut exits = report.exits.iter().filter_map(|(at, _)| extent(at));
            exits.any(|extent| extent.start == start)
        };
        match &premises.entry {
            EntryPremise::Unsettled => suggested
                .filter(|entry| !returns(entry.start))
                .map(EntryPremise::Assumed),
            EntryPremise::Assumed(_) if !is_confirmed => Some(EntryPremise::AsCalled),
            EntryPremise::Assumed(entry) => entry
                .jump
                .map(|(jump, register)| EntryPremise::PerhapsLinked(jump, register)),
            EntryPremise::AsCalled | EntryPremise::PerhapsLinked(..) => None,
        }
    }

    /// Notes the first unreached instruction of each extent that is neither padding nor data and
    /// has a row.
    pub(crate) fn note_unreached(&self, analysis: &Analysis<'_>, report: &mut UnitReport) {
        let code = analysis.code();
        let mut before = 0..0;
        let mut idle_until = 0;
        for insn in analysis.unreached() {
            let range = code.range(insn);
            let before = core::mem::replace(&mut before, range.clone());
            idle_until = self.loop_for_speculation(code, insn).unwrap_or(idle_until);
            if range.start < idle_until {
                continue;
            }
            let extent = |at| self.program().index_containing(at);
            let last = report.unreached.last();
            let is_reported = last.is_some_and(|last| extent(last.0) == extent(range.start));
            if is_reported || code.is_padding(insn) || self.has_no_caller(range.start) {
                continue;
            }
            if !self.is_data(&before, &range) {
                report.unreached.push(Vaddr(range.start));
            }
        }
    }

    /// The end of a loop that begins with an instruction and only catches speculative execution,
    /// behind a call that does not return (a retpoline).
    fn loop_for_speculation(&self, code: &LiftedCode, first: InsnId) -> Option<u64> {
        const MAX_SPECULATION_LOOP_INSNS: usize = 8;
        let start = code.range(first).start;
        let before = InsnId(first.0.checked_sub(1)?);
        let is_behind_call =
            matches!(code.flow(before), Some(Flow::Call(_))) && code.range(before).end == start;
        let text = ElfCodeImage(self.file());
        let waits = |insn: &InsnId| {
            let bytes = text.bytes(code.range(*insn)).unwrap_or_default();
            code.is_padding(*insn) || self.abi_info().speculation_barriers.contains(&bytes)
        };
        let mut line = code
            .ids()
            .skip(first.0 as usize)
            .take(MAX_SPECULATION_LOOP_INSNS);
        let last = line.find(|insn| !waits(insn))?;
        let is_loop = is_behind_call && code.flow(last) == Some(Flow::Jump(start));
        is_loop.then(|| code.range(last).end)
    }

    /// Whether unreached bytes are data; `before` is other unreached code, perhaps adjacent.
    /// Assemblers give lines to instructions only: data shows the line of the instruction before.
    fn is_data(&self, before: &Range<u64>, here: &Range<u64>) -> bool {
        let line = |at| self.lines?.line(Vaddr(at));
        let last = if before.end == here.start {
            before.start
        } else {
            here.start.saturating_sub(1)
        };
        self.program().index_containing(last) == self.program().index_containing(here.start)
            && line(here.start).is_some_and(|line_here| line(last) == Some(line_here))
    }

    /// Whether a label is that of data: data has the line of the instruction before, or none if
    /// there is none. In a compiled file with lines, code may have none, too.
    pub(crate) fn is_data_label(&self, at: Vaddr) -> bool {
        let Some(lines) = self.lines.filter(|_| self.has_lines()) else {
            return false;
        };
        match lines.line(at) {
            Some(here) => {
                let before = at.0.checked_sub(1);
                before.and_then(|before| lines.line(Vaddr(before))) == Some(here)
            }
            None => self.is_hand_written(),
        }
    }

    /// Checks a row in the state before the instruction at `pc`.
    fn check_row(
        &self,
        place: usize,
        state: &AbstractState,
        pc: u64,
        worst: Verdict,
        (control_flow, report): (&LazyControlFlow<'_, '_>, &mut UnitReport),
    ) {
        let Some(row) = report.rows.get_mut(place) else {
            return;
        };
        if self.row_checker.matches_expected_state(row.row, state) {
            row.verdicts.get_or_insert(RowVerdicts::PROVEN);
            return;
        }
        let mut found = if self.is_signal_trampoline(row.row, pc) {
            RowVerdicts::PROVEN
        } else {
            self.row_checker.check(row.row, state, pc).capped_at(worst)
        };
        if let Some(convention) = self.convention_at(pc) {
            found = found.without(self.unpreserved_at(pc), self.abi_info());
            if !convention.has_calls {
                found = found.capped_at(Verdict::Unproven);
            }
        }
        if found.preserved.contains(&Verdict::Refuted)
            && let Some(declared) = self.row_checker.declared(row.row)
            && let Some(extent) = self.program().extent_at(pc)
            && let Some((_, fde)) = self.fde_of(&extent)
        {
            let rows = self.table().rows(fde);
            let of_entry: Vec<_> = rows
                .filter_map(|row| self.row_checker.declared(row.row))
                .collect();
            let mut rows = of_entry.iter();
            let is_left = rows.any(|row| row.enters_context(self.abi_info()))
                && control_flow.get().leaves_by_context(pc);
            self.row_checker
                .excuse_agreements(&mut found, declared, state, &of_entry, is_left);
        }
        row.verdicts = Some(match &row.verdicts {
            Some(known) => known.join(&found),
            None => found,
        });
        if found.worst() != Verdict::Proven {
            let discrepancies = discrepancies_of(&self.row_checker, row.row, &found, state, pc);
            report.discrepancies.extend(discrepancies);
        }
    }

    /// Whether a row depends on something that a running callee owns: registers that it may change,
    /// or memory below the stack pointer.
    fn depends_on_callee(&self, declared: &DeclaredRow, state: &AbstractState) -> bool {
        let abi_info = self.abi_info();
        declared.reads & abi_info.clobbered != 0
            || state.has_below(state.get(abi_info.stack_pointer))
    }

    /// Whether the entry at an address is an outermost or a signal frame.
    fn has_no_caller(&self, at: u64) -> bool {
        self.first_row(at).is_some_and(|(_, declared)| {
            declared.signal_frame || declared.return_address == RuleLocation::Undefined
        })
    }

    /// The value that the file has at a known address that code loads from.
    fn pointed_to(&self, value: AbstractValue) -> Option<u64> {
        let ValueFact::TableTarget(JumpTable {
            address,
            max_index: Some(0),
            encoding: JumpTableEncoding::Absolute64,
        }) = value.fact()
        else {
            return None;
        };
        let text = ElfCodeImage(self.file());
        let pointer = text.bytes_from(address)?.first_chunk()?;
        Some(u64::from_le_bytes(*pointer))
    }

    /// The first row of the entry at an address.
    pub(crate) fn first_row(&self, at: u64) -> Option<(RowId, &DeclaredRow)> {
        let extent = self.program().extent_at(at)?;
        let (_, fde) = self.fde_of(&extent)?;
        let row = self.table().rows(fde).next()?.row;
        Some((row, self.row_checker.declared(row)?))
    }

    /// The jumps of a unit out of their extents.
    fn jumps_out_of_extents(&self, code: &LiftedCode) -> impl Iterator<Item = Vaddr> {
        let leaves = |insn: &InsnId| {
            let from = code.range(*insn).start;
            let to = code.flow(*insn)?.jump_target()?;
            let extent = self.program().extent_at(from);
            let is_within = extent.is_some_and(|extent| extent.start < to && to < extent.end);
            (!is_within).then_some(Vaddr(from))
        };
        code.ids().filter_map(move |insn| leaves(&insn))
    }

    /// The words of the caller's frame that a unit writes at known addresses, by itself or by calls.
    /// The last bit stands for all further ones.
    fn caller_words(&self, analysis: &Analysis<'_>) -> u64 {
        let (sp, cfa) = (self.abi_info().stack_pointer, self.row_checker.cfa_value());
        let mut words = 0;
        let mut note = |from: i64, bytes: i64| {
            let bytes = if bytes == i64::from(UNBOUNDED) {
                8 * i64::from(u64::BITS)
            } else {
                bytes
            };
            for word in from.max(0) / 8..(from + bytes + 7).max(0) / 8 {
                words |= 1_u64 << word.min(63);
            }
        };
        analysis.visit_ops(|insn, op, state| {
            let is_call = analysis.code().flow(insn).is_some_and(Flow::is_call);
            if let Some((base, offset, size)) = op.and_then(Op::stored) {
                let at = state.get(base).plus(offset.into()).distance_from(cfa);
                if let Some(at) = at {
                    note(at, size.into());
                }
            } else if op.is_none()
                && is_call
                && let Some(ReturnBehavior::Registers { words, .. }) =
                    analysis.behavior_of_call(insn, state)
                && let Some(callee) = state.get(sp).distance_from(cfa)
            {
                let written = (0..64).filter(|word| words >> word & 1 != 0);
                written.for_each(|word| note(callee + 8 * word, 8));
            }
        });
        words
    }

    /// The preserved registers without their entry values: bit n stands for register n.
    fn unrestored_registers(&self, state: &AbstractState) -> u64 {
        let is_lost = |register: &&u8| {
            let value = state.get(**register);
            value != AbstractValue::entry_value(**register) && value != AbstractValue::UNKNOWN
        };
        let lost = self.abi_info().preserved.iter().filter(is_lost);
        lost.fold(0, |all, register| all | 1 << (register & 63))
    }
}

fn discrepancies_of(
    row_checker: &RowChecker<'_>,
    row: RowId,
    found: &RowVerdicts,
    state: &AbstractState,
    pc: u64,
) -> Vec<Discrepancy> {
    let abi_info = row_checker.abi_info;
    let declared = row_checker.declared(row);
    let location = |aspect| {
        declared.map_or(RuleLocation::Undefined, |declared| {
            declared.rule_for(aspect, abi_info)
        })
    };
    let unproven = found.aspects(abi_info);
    let unproven = unproven.filter(|(_, verdict)| *verdict != Verdict::Proven);
    let discrepancies = unproven.map(|(aspect, verdict)| {
        let is_for_signals = matches!(
            location(aspect),
            RuleLocation::CfaOffset(offset) if row_checker.is_below_red_zone(row_checker.cfa_value().plus(offset), state)
        );
        let truth = match aspect {
            // The declared slot does not count; the register itself may be restored.
            Aspect::Register(register) if is_for_signals => {
                let is_back = state.get(register) == AbstractValue::entry_value(register);
                is_back.then_some(RuleLocation::Register(register, 0))
            }
            Aspect::Cfa => row_checker
                .actual_cfa(location(aspect), state)
                .map(|(register, offset)| RuleLocation::Register(register, offset)),
            Aspect::ReturnAddress => row_checker.actual_location(abi_info.return_address, location(aspect), state),
            Aspect::Register(register) => row_checker.actual_location(register, location(aspect), state),
        };
        Discrepancy {
            address: Vaddr(pc),
            row,
            aspect,
            verdict,
            actual: truth,
            hint: if is_for_signals { Some(Hint::BelowRedZone {
                red_zone: abi_info.red_zone,
            }) } else { hint::i386_numbering(row_checker, row, aspect, truth, state) },
        }
    });
    discrepancies.collect()
}
