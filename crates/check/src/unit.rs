//! Checks the rows of some functions, instruction by instruction.

use core::ops::Range;
use std::borrow::Cow;

use unspool_code_analysis::dataflow::{EdgeKind, VisitFilter};
use unspool_code_analysis::op::{Flow, Op, ReturnTarget, UNBOUNDED};
use unspool_code_analysis::program::CodeImage as _;
use unspool_code_analysis::value::{JumpTable, JumpTableEncoding};
use unspool_code_analysis::{
    AbstractState, AbstractValue, Analysis, Analyzer, Assumptions, InsnId, LiftedCode, PushedWords,
    ReturnBehavior, StackHeightConflict, ValueFact,
};
use unspool_rows::{RowId, Vaddr};
use unspool_synthesis::ElfCodeImage;

use crate::declared_row::{DeclaredRow, RuleLocation};
use crate::hint::{self, Hint};
use crate::origin::CodeOrigin;
use crate::path::JumpEdge;
use crate::row_checker::{Aspect, RowChecker, RowVerdicts, Verdict};
use crate::subject::CheckSubject;
use crate::unit_checker::UnitChecker;

mod computed_stores;
mod control_flow;
mod uncalled;

use control_flow::LazyControlFlow;

/// Stands for a stack pointer at an entry that is at no known distance from the caller's. Other bases
/// have the numbers of instructions.
pub(crate) const UNKNOWN_FRAME_BASE: u32 = (1 << 25) - 1;

/// The verdict on one row of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckedRow {
    /// The address of the row.
    pub start: Vaddr,
    /// The row.
    pub row: RowId,
    /// The join over all its instructions; `None` if none is reached.
    pub verdicts: Option<RowVerdicts>,
}

/// A rule of a row that is not proven before an instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Discrepancy {
    /// The address of the instruction.
    pub address: Vaddr,
    /// The row.
    pub row: RowId,
    /// The aspect.
    pub aspect: Aspect,
    /// The verdict.
    pub verdict: Verdict,
    /// The actual location, if it is known.
    pub actual: Option<RuleLocation>,
    /// A possible cause.
    pub hint: Option<Hint>,
}

/// A join of paths with different stack heights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeightConflict {
    /// Where they join.
    pub at: Vaddr,
    /// The paths.
    pub paths: [JoiningPath; 2],
}

/// A path to a join.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JoiningPath {
    /// The last instruction before the join; the join itself if the path begins there.
    pub from: Vaddr,
    /// Whether it is a call.
    pub is_call: bool,
    /// Distance of the CFA above the stack pointer in bytes, if it is known.
    pub cfa: Option<i64>,
}

/// The report of a unit's extents.
#[derive(Debug, Clone, Default)]
pub struct UnitReport {
    /// Their rows, ascending.
    pub rows: Vec<CheckedRow>,
    /// Rules that are not proven, in code order.
    pub discrepancies: Vec<Discrepancy>,
    /// Joins of paths with different stack heights.
    pub conflicts: Vec<HeightConflict>,
    /// The first unreached instruction of each entry that is neither padding nor data.
    pub unreached: Vec<Vaddr>,
    /// Returns of functions to their callers, and their behavior.
    pub exits: Vec<(Vaddr, ReturnBehavior)>,
    /// Jumps to other functions in place of a return, and what callers find behind those.
    pub(crate) tail_calls: Vec<(Vaddr, ReturnBehavior)>,
    /// Other exits of extents; not all of them in compiled code.
    pub other_exits: Vec<Vaddr>,
    /// Functions of other units that this one continues in with another CFA than their first rows
    /// say. Each has the distance of that CFA above the stack pointer.
    pub entered_with_frame: Vec<(Vaddr, i64)>,
    /// The jumps among these.
    pub(crate) jumps_with_frame: Vec<JumpEdge>,
    /// Rows that start inside an instruction.
    pub misaligned_rows: Vec<Vaddr>,
    /// Instructions that fall through the end of all entries, and their targets.
    pub fall_through_ends: Vec<JumpEdge>,
    /// Whether a store to the stack uses an index or a number that only a run knows: proven rows
    /// hold if it is inside its array.
    pub assumes_bounds: bool,
    /// Whether the analysis took too many steps: nothing is known.
    pub is_given_up: bool,
    /// Reached instructions that are not known. Whatever control does behind them is not judged.
    pub unknown_insns: Vec<Vaddr>,
    /// Calls of unknown functions that are assumed not to return: the rows behind them contradict
    /// the calls, and other paths lead there.
    pub assumed_noreturn: Vec<Vaddr>,
    /// Ends of entries, in hand-written code, behind calls that may return there.
    pub(crate) ends_behind_calls: Vec<Vaddr>,
    /// Targets of indirect jumps, in hand-written code, that are in no entry.
    pub(crate) targets_outside: Vec<Vaddr>,
    /// Indirect jumps, in hand-written code, into other units otherwise than to functions.
    pub(crate) indirect_edges: Vec<JumpEdge>,
    /// Jumps to other functions with addresses of the unit's code in registers: the function, and
    /// the registers. Bit n stands for register n.
    pub(crate) jumps_with_address: Vec<(Vaddr, u64)>,
    /// Jumps to a register's entry value: the start of the extent, and the register.
    pub(crate) entry_register_jumps: Vec<(Vaddr, u8)>,
    /// Returns, with the preserved registers that have another value than at entry: bit n stands
    /// for register n.
    pub unrestored_at_returns: Vec<(Vaddr, u64)>,
}

impl UnitReport {
    /// Whether there is nothing to report, as mostly.
    pub(crate) fn is_clear(&self) -> bool {
        let places = [&self.unreached, &self.misaligned_rows, &self.unknown_insns];
        self.discrepancies.is_empty()
            && !self.is_given_up
            && self.fall_through_ends.is_empty()
            && places.iter().all(|places| places.is_empty())
    }

    /// Leaves all rows unproven: control may come back from an unknown instruction to any of them.
    fn leave_open(&mut self) {
        self.unreached.clear();
        for row in &mut self.rows {
            let known = row.verdicts.unwrap_or(RowVerdicts::PROVEN);
            row.verdicts = Some(known.join(&RowVerdicts::UNPROVEN));
        }
    }
}

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

/// How the function of a unit is entered.
#[derive(Debug, Clone, Default)]
enum EntryPremise {
    /// As its first row says. The code may suggest something else.
    #[default]
    Unsettled,
    /// In a state that explains how it leaves.
    Assumed(Box<AssumedEntry>),
    /// As its first row says.
    AsCalled,
    /// As its first row says, or with the return address in a register, to which it jumps at an
    /// address.
    PerhapsLinked(u64, u8),
}

impl EntryPremise {
    fn assumed(&self) -> Option<&AssumedEntry> {
        match self {
            EntryPremise::Assumed(entry) => Some(entry),
            _ => None,
        }
    }
}

/// A function that is not entered as by a call.
#[derive(Debug, Clone)]
struct AssumedEntry {
    /// Its start.
    start: u64,
    /// Its state there.
    state: AbstractState,
    /// The jump that suggests it, and the register. It may also be a tail call.
    jump: Option<(u64, u8)>,
}

/// What the code does not show: how a function is entered, and the targets of unresolved jumps.
#[derive(Debug, Default)]
struct Premises {
    entry: EntryPremise,
    /// Starts of unreached code.
    targets: Vec<u64>,
    /// All unreached instructions, ascending.
    unreached: Vec<u64>,
}

/// Walks a unit's instructions and rows together.
pub(crate) struct RowWalk<'w, 's> {
    subject: &'w CheckSubject<'s>,
    control_flow: LazyControlFlow<'w, 's>,
    report: &'w mut UnitReport,
    /// Starts of the unit's extents, ascending.
    starts: Vec<u64>,
    /// Their ends.
    ends: Vec<u64>,
    /// Index of the current row.
    row: usize,
    /// Start of its extent.
    begin: u64,
    /// End of its extent.
    end: u64,
    /// The stack pointer at that start. Symbolic ones have other names elsewhere.
    sp_at_begin: AbstractValue,
    /// Start of the next row, or the extent's end.
    row_end: u64,
    /// The declared form of the row.
    declared: Option<&'w DeclaredRow>,
    /// The parts of a state that it depends on.
    reads: u64,
    /// The write set since the row was checked.
    unchecked_writes: u64,
    /// The addresses of the last instruction.
    last: Range<u64>,
    /// The instructions, ascending, that only guesses reach: nothing is refuted there.
    guessed_insns: &'w [u64],
    /// A jump that may be a return to a register, and the register.
    linked_jump: Option<(u64, u8)>,
    /// How a function may be entered, if not as by a call.
    suggested_entry: Option<Box<AssumedEntry>>,
    /// Whether control goes back to where it came from otherwise than by a return.
    is_entry_confirmed: bool,
    /// Origin of the unit.
    origin: CodeOrigin,
    /// Whether jumps to other functions matter: to their rows, or to the callers of this one.
    follows_jumps: bool,
    /// Words of the caller's frame that are written, as in [`ReturnBehavior::Registers`].
    caller_words: u64,
}

impl<'w, 's> RowWalk<'w, 's> {
    fn new(
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
    pub(crate) fn visit_insn(
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
    fn note_return_address(&mut self, at: u64, verdict: Verdict, actual: Option<RuleLocation>) {
        self.note_verdict(at, Aspect::ReturnAddress, verdict, actual);
    }

    /// Notes that the CFA or the return address is not, or may not be, what the present row says.
    fn note_verdict(
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

    /// If `target` is the return address: the behavior of a return with the stack pointer `left`.
    fn exit(
        &self,
        target: AbstractValue,
        state: &AbstractState,
        left: AbstractValue,
    ) -> Option<ReturnBehavior> {
        let abi_info = self.subject.abi_info();
        let behind = target.bytes_past_return_address(abi_info.return_address)?;
        let cfa =
            AbstractValue::entry_value(abi_info.stack_pointer).plus(abi_info.call_pushes.into());
        let Some(popped) = left.distance_from(cfa) else {
            return self.exit_elsewhere(state);
        };
        if self.origin == CodeOrigin::HandWritten {
            let registers = self.register_behavior(state, popped);
            if self.caller_words & BEYOND_CALLER_WORDS != 0 {
                return Some(ReturnBehavior::Unknown);
            }
            match (behind, popped) {
                (0, 0) => return Some(registers),
                _ if registers.breaks_abi() => return Some(ReturnBehavior::Unknown),
                _ => {}
            }
        }
        if behind > 0 {
            return (popped == 0).then_some(ReturnBehavior::SkipsData(behind));
        }
        if let Ok(pops) = u16::try_from(popped) {
            return Some(ReturnBehavior::Pops(pops));
        }
        let saved = |at: i64| {
            let holds = state.load(cfa.plus(at)).unwrap_or(AbstractValue::UNKNOWN);
            let mut preserved = abi_info.preserved.iter().copied();
            preserved.find(|register| holds == AbstractValue::entry_value(*register))
        };
        let words = (1..=-popped / 8).map(|word| saved(-8 * word));
        (popped % 8 == 0).then(|| PushedWords::new(words).map(ReturnBehavior::LeavesWords))?
    }

    /// The behavior of a return with a stack pointer at no known distance from the caller's, as of
    /// functions that allocate on their caller's stack.
    fn exit_elsewhere(&self, state: &AbstractState) -> Option<ReturnBehavior> {
        let behavior = self.register_behavior(state, 0);
        let sp = 1 << self.subject.abi_info().stack_pointer;
        match behavior {
            _ if self.origin == CodeOrigin::Compiler => None,
            ReturnBehavior::Registers {
                lost,
                unknown,
                words,
                ..
            } => Some(ReturnBehavior::Registers {
                kept: 0,
                lost: lost | sp,
                unknown: unknown | sp,
                words,
            }),
            other => Some(other),
        }
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

    /// How a function treats registers, and the words of its caller's frame above those that it
    /// pops, if it returns in a state. A register with an unknown value counts as preserved, unless
    /// the row at the return denies that.
    fn register_behavior(&self, state: &AbstractState, popped: i64) -> ReturnBehavior {
        let words = register_set(|word| i64::from(word) * 8 >= popped);
        let abi_info = self.subject.abi_info();
        let kept = register_set(|register| {
            abi_info.clobbered >> register & 1 != 0
                && state.get(register) == AbstractValue::entry_value(register)
        });
        let denied = self.undefined_registers();
        let denied =
            denied & register_set(|register| state.get(register) == AbstractValue::UNKNOWN);
        let lost = self.subject.unrestored_registers(state);
        // A stack address may be the same, computed anew.
        let addresses = register_set(|register| state.get(register).is_address());
        ReturnBehavior::Registers {
            kept,
            lost: lost | denied,
            unknown: lost & addresses | denied,
            words: self.caller_words & words,
        }
    }

    /// The preserved registers that the present row says are lost.
    fn undefined_registers(&self) -> u64 {
        let abi_info = self.subject.abi_info();
        register_set(|register| {
            abi_info.preserved.contains(&register)
                && self.declared.is_some_and(|row| {
                    row.rule_for(Aspect::Register(register), abi_info) == RuleLocation::Undefined
                })
        })
    }

    /// Notes a jump to another function in place of a return.
    fn note_tail_call(
        &mut self,
        analysis: &Analysis<'_>,
        insn: InsnId,
        target: AbstractValue,
        state: &AbstractState,
    ) {
        let column = self.subject.abi_info().return_address;
        let is_return = target.bytes_past_return_address(column).is_some();
        if is_return || self.leads_inside(analysis, target) {
            return;
        }
        let named = || match target.fact() {
            ValueFact::TableTarget(table) => {
                let image = ElfCodeImage(self.subject.file());
                let mut targets = self.subject.program().jump_table_targets(table, &image);
                targets.next()
            }
            _ => None,
        };
        let pointed_to = || self.subject.pointed_to(target).or_else(named);
        let to = target.as_constant().or_else(pointed_to);
        let returns = analysis.returns_of(target);
        self.note_exit_to(analysis, insn, (to, returns), state);
    }

    /// Notes that control goes on in another function, as if that were called in place of a return:
    /// what that one does counts as this one's, and nobody restores what this one has changed.
    fn note_exit_to(
        &mut self,
        analysis: &Analysis<'_>,
        insn: InsnId,
        (to, returns): (Option<u64>, Option<ReturnBehavior>),
        state: &AbstractState,
    ) {
        let (range, program) = (analysis.code().range(insn), self.subject.program());
        let sp = self.subject.abi_info().stack_pointer;
        let is_own = to.is_some_and(|to| {
            program.index_containing(to) == program.index_containing(range.start)
        });
        let is_function =
            to.is_none_or(|to| program.extent_at(to).is_none() || program.is_call_target(to));
        if is_own || !is_function || state.get(sp) != AbstractValue::entry_value(sp) {
            return;
        }
        let exit = match returns {
            Some(ReturnBehavior::Never) => None,
            Some(ReturnBehavior::SkipsData(_) | ReturnBehavior::Unknown) => returns,
            // A compiler's function preserves what it has to.
            _ if self.origin == CodeOrigin::Compiler => returns
                .filter(|returns| returns.breaks_abi())
                .map(ReturnBehavior::without_kept),
            _ => {
                let column = AbstractValue::entry_value(self.subject.abi_info().return_address);
                let behind = analysis.state_after_tail_call(state, returns);
                let exit = self.exit(column, &behind, behind.get(sp));
                exit.map(|exit| self.with_callee(exit, to, returns))
            }
        };
        let exit = exit.map(|exit| (Vaddr(range.start), exit));
        self.report.tail_calls.extend(exit);
    }

    /// The behavior of a function that ends with a jump to `to`, which returns so. If it is not
    /// known where the jump leads, a register that the row finds may be restored there.
    fn with_callee(
        &self,
        exit: ReturnBehavior,
        to: Option<u64>,
        callee: Option<ReturnBehavior>,
    ) -> ReturnBehavior {
        let ReturnBehavior::Registers {
            kept,
            lost,
            unknown,
            words,
        } = exit
        else {
            return exit;
        };
        let (also, too, others) = match callee {
            Some(ReturnBehavior::Registers {
                lost,
                unknown,
                words,
                ..
            }) => (lost, unknown, words),
            _ => (0, 0, 0),
        };
        let perhaps = if to.is_none() {
            lost & !self.undefined_registers()
        } else {
            0
        };
        ReturnBehavior::Registers {
            kept,
            lost: lost | also,
            unknown: unknown | too | perhaps,
            words: words | others,
        }
    }

    /// Whether a jump leads through a table to instructions of the unit.
    fn leads_inside(&self, analysis: &Analysis<'_>, target: AbstractValue) -> bool {
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
    fn refute_rows_without_caller(&mut self) {
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

    /// A register that a row declares saved is lost if it has another value at a return. The value
    /// may still be in its slot, but the caller does not look there.
    fn check_unrestored(&mut self, at: u64, to: ReturnTarget, state: &AbstractState) {
        let abi_info = self.subject.abi_info();
        let sp = abi_info.stack_pointer;
        let is_return =
            state.get(sp) == AbstractValue::entry_value(sp) && abi_info.is_return(to, state);
        let Some(declared) = self.declared.filter(|_| is_return) else {
            return;
        };
        let lost = self.subject.unrestored_registers(state) & !self.subject.unpreserved_at(at);
        let Some(row) = self.report.rows.get_mut(self.row) else {
            return;
        };
        let declared_rules = abi_info.preserved.iter().zip(&declared.preserved);
        for (place, (register, location)) in declared_rules.enumerate() {
            let is_lost = lost >> (register & 63) & 1 != 0;
            // If its slot was overwritten, the row as such is reported.
            let is_saved = matches!(*location, RuleLocation::CfaOffset(offset)
                if state.load(self.subject.row_checker.cfa_value().plus(offset)) == Some(AbstractValue::entry_value(*register)));
            if !is_lost || !is_saved {
                continue;
            }
            let mut verdicts = row.verdicts.unwrap_or(RowVerdicts::PROVEN);
            if let Some(verdict) = verdicts.preserved.get_mut(place) {
                *verdict = Verdict::Refuted;
            }
            row.verdicts = Some(verdicts);
            self.report.discrepancies.push(Discrepancy {
                address: Vaddr(at),
                row: row.row,
                aspect: Aspect::Register(*register),
                verdict: Verdict::Refuted,
                actual: None,
                hint: Some(Hint::LostAtReturn),
            });
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
    fn is_outside(&self, at: u64) -> bool {
        at >= self.end && self.subject.program().index_containing(at).is_none()
    }
}

/// The last of the words that a function may write to its caller's frame stands for all further
/// ones.
const BEYOND_CALLER_WORDS: u64 = 1 << 63;

/// The registers for which something holds: bit n stands for register n.
fn register_set(is_in: impl Fn(u8) -> bool) -> u64 {
    let registers = (0..64).filter(|register| is_in(*register));
    registers.fold(0, |all, register| all | 1 << register)
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

/// Assumes that the table is right where the code alone does not show whether control reaches an
/// address.
pub(crate) struct TableAssumptions<'s> {
    /// The rows of the unit, ascending.
    rows: &'s [CheckedRow],
    subject: &'s CheckSubject<'s>,
    row_checker: &'s RowChecker<'s>,
    origin: CodeOrigin,
    guesses: &'s [u64],
    assumed_entry: Option<&'s AssumedEntry>,
    /// Registers that calls change by the unit's convention: bit n stands for register n.
    changed_by_calls: u64,
}

impl<'s> TableAssumptions<'s> {
    pub(crate) fn new(
        subject: &'s CheckSubject<'s>,
        unit: usize,
        rows: &'s [CheckedRow],
    ) -> TableAssumptions<'s> {
        TableAssumptions {
            rows,
            subject,
            row_checker: &subject.row_checker,
            origin: subject.origin_of_unit(unit),
            guesses: &[],
            assumed_entry: None,
            changed_by_calls: rows
                .first()
                .map_or(0, |row| subject.unpreserved_at(row.start.0)),
        }
    }

    /// The same with premises that the code does not show.
    fn with_premises(mut self, premises: &'s Premises) -> TableAssumptions<'s> {
        self.guesses = &premises.targets;
        self.assumed_entry = premises.entry.assumed();
        self
    }

    /// The row declared for an address of the unit.
    pub(crate) fn declared_at(&self, address: u64) -> Option<&DeclaredRow> {
        self.row_checker.declared_in(self.rows, address)
    }
}

impl Assumptions for TableAssumptions<'_> {
    fn flows_in(&self, edge_kind: EdgeKind, address: u64, state: &AbstractState) -> bool {
        let is_certain = self.origin == CodeOrigin::HandWritten
            && match edge_kind {
                EdgeKind::CallReturn => false,
                EdgeKind::KnownReturn => true,
                // Other code may enter the part, as its first row says.
                EdgeKind::ExtentJump => self.subject.program().index_starting_at(address).is_none(),
            };
        is_certain
            || self.declared_at(address).is_none_or(|declared| {
                self.row_checker.check_cfa(declared, state) != Verdict::Refuted
            })
    }

    fn function_entry_state(&self, address: u64) -> Option<AbstractState> {
        if let Some(entry) = self.assumed_entry.filter(|entry| entry.start == address) {
            return Some(entry.state.clone());
        }
        if self.subject.is_declared_entry(address) {
            return self.row_checker.entry_state(self.declared_at(address)?);
        }
        let register = self.link_register(address)?;
        let abi_info = self.row_checker.abi_info;
        let mut state = AbstractState::new();
        state.set(
            register,
            AbstractValue::entry_value(abi_info.return_address),
        );
        state.set(abi_info.stack_pointer, self.row_checker.cfa_value());
        Some(state)
    }

    fn fragment_entry_state(&self, address: u64) -> Option<AbstractState> {
        match self.assumed_entry.filter(|entry| entry.start == address) {
            Some(entry) => Some(entry.state.clone()),
            None => self.row_checker.entry_state(self.declared_at(address)?),
        }
    }

    fn link_register(&self, address: u64) -> Option<u8> {
        self.subject.link_register(address)
    }

    fn changed_by_calls(&self) -> u64 {
        self.changed_by_calls
    }

    fn unknown_callee(&self) -> Option<ReturnBehavior> {
        let callee = self.subject.unknown_callee();
        callee.filter(|_| self.origin == CodeOrigin::HandWritten)
    }

    fn indirect_targets(&self) -> &[u64] {
        self.guesses
    }

    fn is_nested_function(&self, address: u64) -> bool {
        // Unwinders treat it as a frame of its own.
        let declared = self.declared_at(address);
        declared.is_some_and(|declared| declared.is_function_entry(self.row_checker.abi_info))
    }

    /// A hand-written breakpoint in other code, which is not padding.
    fn resumes_after_trap(&self, address: u64) -> bool {
        let breakpoint = self.row_checker.abi_info.breakpoint;
        let code = ElfCodeImage(self.subject.file());
        let bytes = code.bytes_from(address).unwrap_or_default();
        let rest = bytes.strip_prefix(breakpoint).unwrap_or_default();
        self.origin == CodeOrigin::HandWritten && !rest.is_empty() && !rest.starts_with(breakpoint)
    }

    fn args_size(&self, address: u64, _: AbstractValue) -> u64 {
        let declared = self.declared_at(address);
        declared.map_or(0, |declared| declared.args_size)
    }
}
