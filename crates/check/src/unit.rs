//! The rows of some functions, judged instruction by instruction.

use core::ops::Range;

use unspool_ir::{RowId, Vaddr};
use unspool_module::ElfFile;
use unspool_recover::Text;
use unspool_synth::analysis::{By, Watch};
use unspool_synth::op::{Flow, Op};
use unspool_synth::program::Image as _;
use unspool_synth::value::{Entries, JumpTable};
use unspool_synth::{
    Analysis, Analyzer, Code, Conflict, Guide, InsnId, Known, Returns, State, Value, Words,
};

use crate::authors::Maker;
use crate::declared::{Declared, Place};
use crate::hint::{self, Hint};
use crate::judge::{Aspect, Judge, Judgement, Verdict};
use crate::path::Jump;
use crate::prover::Prover;
use crate::subject::Subject;

/// What was found of one row of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowVerdict {
    /// The address of the row.
    pub start: Vaddr,
    /// The row.
    pub row: RowId,
    /// The worst at all its instructions; `None` if nothing leads to any of them.
    pub judgement: Option<Judgement>,
}

/// A claim of a row that is not proven before an instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doubt {
    /// The address of the instruction.
    pub at: Vaddr,
    /// The row.
    pub row: RowId,
    /// What of it.
    pub aspect: Aspect,
    /// What was found.
    pub verdict: Verdict,
    /// Where it is instead, if that is known.
    pub truth: Option<Place>,
    /// What may have led to it.
    pub hint: Option<Hint>,
}

/// What was found of the extents of a unit.
#[derive(Debug, Clone, Default)]
pub struct UnitReport {
    /// Their rows, ascending.
    pub rows: Vec<RowVerdict>,
    /// What is not proven, in the order of the code.
    pub doubts: Vec<Doubt>,
    /// Where paths meet with different stack heights: there, and the two places that they come from.
    pub conflicts: Vec<[Vaddr; 3]>,
    /// The first instruction of each entry that nothing leads to, though it is no padding and no data.
    pub unreached: Vec<Vaddr>,
    /// Where functions return to their callers, and how.
    pub exits: Vec<(Vaddr, Returns)>,
    /// Where control leaves an extent otherwise; of what compilers made not all.
    pub others: Vec<Vaddr>,
    /// Functions of other units that control goes on in with another CFA than their first rows say, and how far that is above the stack pointer.
    pub ahead: Vec<(Vaddr, i64)>,
    /// Rows that start inside an instruction.
    pub inside: Vec<Vaddr>,
    /// Instructions from which control goes on behind the end of all entries, and where that is.
    pub runs_out: Vec<Jump>,
    /// Whether something is stored on the stack by an index or a number that only a run knows: what is proven is so if that is inside its array.
    pub assumes_bounds: bool,
    /// Returns, and which preserved registers are not what they were at entry: bit n stands for register n.
    pub returns: Vec<(Vaddr, u64)>,
}

impl UnitReport {
    /// Whether nothing is to be told, as it mostly is.
    pub(crate) fn is_clear(&self) -> bool {
        let places = [&self.unreached, &self.inside];
        self.doubts.is_empty()
            && self.runs_out.is_empty()
            && places.iter().all(|places| places.is_empty())
    }
}

impl Subject<'_> {
    /// Judges the rows of a unit of the program.
    #[must_use]
    pub fn judge_unit(&self, prover: &mut Prover, unit: usize) -> UnitReport {
        let rows = self.rows_of(unit);
        // Callers may rely on what is left as it was: it must be known of what people wrote.
        let left = match self.maker_of(unit) {
            Maker::People => rows,
            Maker::Compiler => match self.prove_unit(prover, unit, rows) {
                Ok(report) => return report,
                Err(rows) => rows,
            },
        };
        self.judge_fully(&mut prover.analyzer, unit, left)
    }

    /// The same with all that is known of each path.
    pub(crate) fn judge_fully(
        &self,
        analyzer: &mut Analyzer,
        unit: usize,
        rows: Vec<RowVerdict>,
    ) -> UnitReport {
        let (sure, guesses) = self.judge_with(analyzer, unit, rows.clone(), &Guesses::default());
        match guesses {
            Some(guesses) => self.judge_with(analyzer, unit, rows, &guesses).0,
            None => sure,
        }
    }

    /// Judges the rows of a unit as it is come into where control goes on in a function that was not called: with the CFA so far above the stack
    /// pointer, and what else the function's first row says.
    pub(crate) fn judge_shared(&self, analyzer: &mut Analyzer, at: Vaddr, cfa: i64) -> UnitReport {
        let Some(unit) = self.program().unit_of(at.0) else {
            return UnitReport::default();
        };
        let begin = self.first_row(at.0).and_then(|(_, declared)| {
            let cfa = Place::Register(self.facts().stack_pointer, cfa);
            self.judge.entry(&Declared { cfa, ..*declared })
        });
        let guesses = Guesses {
            begin: begin.map(|state| (at.0, state)),
            ..Guesses::default()
        };
        self.judge_with(analyzer, unit, self.rows_of(unit), &guesses)
            .0
    }

    /// Judges the rows of a unit with guesses where jumps lead; and where they may lead, if code is left that nothing leads to, and it
    /// is known what is code.
    fn judge_with(
        &self,
        analyzer: &mut Analyzer,
        unit: usize,
        rows: Vec<RowVerdict>,
        guesses: &Guesses,
    ) -> (UnitReport, Option<Guesses>) {
        let mut guide = ByTable::new(self, unit, &rows);
        guide.guesses = &guesses.starts;
        guide.begin = guesses.begin.as_ref();
        let analysis = self.analyze(analyzer, unit, &guide);
        let address = |id| Vaddr(analysis.code().range(id).start);
        let meeting = |conflict: &Conflict| {
            [conflict.at, conflict.first_from, conflict.other_from].map(address)
        };
        let mut report = UnitReport {
            conflicts: analysis.conflicts().iter().map(meeting).collect(),
            rows,
            assumes_bounds: analysis.assumes_bounds(),
            ..UnitReport::default()
        };
        self.judge_all(unit, &analysis, guesses, &mut report);
        let maker = self.maker_of(unit);
        if maker == Maker::People {
            self.refute_meetings(&mut report);
            report.others.extend(self.jumps_out(analysis.code()));
        }
        let is_known =
            maker == Maker::People && self.lines.is_some() && !report.unreached.is_empty();
        let next = is_known.then(|| self.guesses(&analysis));
        (report, next)
    }

    /// No row that counts from the stack pointer is right where paths meet with different stack heights.
    fn refute_meetings(&self, report: &mut UnitReport) {
        let sp = self.facts().stack_pointer;
        let counts = |row| {
            let declared = self.judge.declared(row);
            declared.is_some_and(|declared| declared.cfa.counts_from(sp))
        };
        let doubts = report.doubts.iter();
        let of_cfa = doubts.filter(|doubt| doubt.aspect == Aspect::Cfa && counts(doubt.row));
        for doubt in of_cfa {
            let behind = report.rows.partition_point(|row| row.start <= doubt.at);
            let row = behind
                .checked_sub(1)
                .and_then(|row| report.rows.get_mut(row));
            let mut meetings = report.conflicts.iter();
            if let Some(known) = row.and_then(|row| row.judgement.as_mut())
                && meetings.any(|[at, ..]| *at == doubt.at)
            {
                known.cfa = Verdict::Refuted;
            }
        }
    }

    /// Where code begins that nothing is known to lead to, and that is no data.
    fn guesses(&self, analysis: &Analysis<'_>) -> Guesses {
        let code = analysis.code();
        let mut guesses = Guesses::default();
        let mut last = (0..0, false);
        for insn in analysis.unreached() {
            let range = code.range(insn);
            let is_code = !code.is_padding(insn) && !self.is_data(&last.0, &range);
            let begins = !(last.1 && last.0.end == range.start);
            if is_code && begins && !self.pushes_first(analysis, insn) {
                guesses.starts.push(range.start);
            }
            guesses.unreached.push(range.start);
            last = (range, is_code);
        }
        guesses
    }

    /// Whether code puts something on the stack before it goes elsewhere: a jump may lead behind some of that.
    fn pushes_first(&self, analysis: &Analysis<'_>, first: InsnId) -> bool {
        let (code, sp) = (analysis.code(), self.facts().stack_pointer);
        let pushes = |op: &Op| matches!(*op, Op::Add { to, bytes, .. } if to == sp && bytes < 0);
        let line = code.ids().skip(first.0 as usize);
        let mut line = line.take_while(|insn| code.flow(*insn).is_none());
        line.any(|insn| code.ops_of(insn).iter().any(pushes))
    }

    /// Finds what holds in a unit of the program. Where the code alone does not say whether control comes somewhere, the
    /// rows of the unit are believed, if a compiler made them.
    pub fn analyze_unit<'a>(&'a self, analyzer: &'a mut Analyzer, unit: usize) -> Analysis<'a> {
        let rows = self.rows_of(unit);
        self.analyze(analyzer, unit, &ByTable::new(self, unit, &rows))
    }

    pub(crate) fn analyze<'a>(
        &'a self,
        analyzer: &'a mut Analyzer,
        unit: usize,
        guide: &ByTable<'_>,
    ) -> Analysis<'a> {
        let (landings, image) = (self.landings(unit), Text(self.file()));
        analyzer.analyze(self.program(), &image, unit, &landings, guide)
    }

    /// The rows of a unit, none of them judged.
    pub(crate) fn rows_of(&self, unit: usize) -> Vec<RowVerdict> {
        let extents = self.program().unit(unit);
        let mut rows = Vec::new();
        for (_, fde) in extents.filter_map(|extent| self.fde_of(&extent)) {
            rows.extend(self.table().rows(fde).map(|row| RowVerdict {
                start: row.start,
                row: row.row,
                judgement: None,
            }));
        }
        rows
    }

    /// Judges the row of each instruction, where it or what it speaks of has changed.
    fn judge_all(
        &self,
        unit: usize,
        analysis: &Analysis<'_>,
        guesses: &Guesses,
        report: &mut UnitReport,
    ) {
        let mut walk = Walk::new(self, unit, report);
        walk.guessed = &guesses.unreached;
        analysis.watch(|insn, state, written| walk.look(analysis, insn, state, written));
        self.note_unreached(analysis, report);
    }

    /// Notes the first instruction of each extent that nothing leads to, though it is no padding and no data, and something
    /// is claimed of it.
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
            let extent = |at| self.program().containing(at);
            let last = report.unreached.last();
            let is_told = last.is_some_and(|last| extent(last.0) == extent(range.start));
            if is_told || code.is_padding(insn) || self.claims_nothing(range.start) {
                continue;
            }
            if !self.is_data(&before, &range) {
                report.unreached.push(Vaddr(range.start));
            }
        }
    }

    /// Where the loop ends that begins with an instruction, if a processor is to run ahead into it and no further, behind a call that does not
    /// come back (a retpoline).
    fn loop_for_speculation(&self, code: &Code, first: InsnId) -> Option<u64> {
        const MOST: usize = 8;
        let start = code.range(first).start;
        let before = InsnId(first.0.checked_sub(1)?);
        let is_behind_call =
            matches!(code.flow(before), Some(Flow::Call(_))) && code.range(before).end == start;
        let text = Text(self.file());
        let waits = |insn: &InsnId| {
            let bytes = text.bytes(code.range(*insn)).unwrap_or_default();
            code.is_padding(*insn) || self.facts().waits.contains(&bytes)
        };
        let mut line = code.ids().skip(first.0 as usize).take(MOST);
        let last = line.find(|insn| !waits(insn))?;
        let is_loop = is_behind_call && code.flow(last) == Some(Flow::Jump(start));
        is_loop.then(|| code.range(last).end)
    }

    /// Whether what nothing leads to is data; `before` is what else nothing leads to, perhaps directly before. Assemblers give lines to
    /// instructions only: data has that of the instruction before.
    fn is_data(&self, before: &Range<u64>, here: &Range<u64>) -> bool {
        let line = |at| self.lines?.line(Vaddr(at));
        let last = match before.end == here.start {
            true => before.start,
            false => here.start.saturating_sub(1),
        };
        self.program().containing(last) == self.program().containing(here.start)
            && line(here.start).is_some_and(|line_here| line(last) == Some(line_here))
    }

    /// Whether a label stands before data: that has the line of the instruction before, or none if there is none. Where a compiler's
    /// file has lines, what has none may be code, too.
    pub(crate) fn is_data_label(&self, at: Vaddr) -> bool {
        let Some(lines) = self.lines.filter(|_| self.has_lines()) else {
            return false;
        };
        match lines.line(at) {
            Some(here) => {
                let before = at.0.checked_sub(1);
                before.and_then(|before| lines.line(Vaddr(before))) == Some(here)
            }
            None => self.is_whole_of_people(),
        }
    }

    /// Judges a row in the state before the instruction at `pc`.
    fn judge_row(
        &self,
        place: usize,
        state: &State,
        pc: u64,
        worst: Verdict,
        report: &mut UnitReport,
    ) {
        let Some(row) = report.rows.get_mut(place) else {
            return;
        };
        if self.judge.is_proven_plainly(row.row, state) {
            row.judgement.get_or_insert(Judgement::PROVEN);
            return;
        }
        let mut found = self.judge.judge(row.row, state, pc).at_worst(worst);
        if found.preserved.contains(&Verdict::Refuted)
            && let Some(declared) = self.judge.declared(row.row)
            && let Some(extent) = self.program().extent_at(pc)
            && let Some((_, fde)) = self.fde_of(&extent)
        {
            let rows = self.table().rows(fde);
            let of_entry: Vec<_> = rows
                .filter_map(|row| self.judge.declared(row.row))
                .collect();
            self.judge
                .spare_agreed(&mut found, declared, state, &of_entry);
        }
        row.judgement = Some(match &row.judgement {
            Some(known) => known.worse(&found),
            None => found,
        });
        if found.worst() != Verdict::Proven {
            let doubts = doubts_of(&self.judge, row.row, &found, state, pc);
            report.doubts.extend(doubts);
        }
    }

    /// Whether a row speaks of what is the callee's while it runs: registers that it may change, or what is below
    /// the stack pointer.
    fn speaks_of_callee(&self, declared: &Declared, state: &State) -> bool {
        let facts = self.facts();
        declared.reads & facts.clobbered != 0 || state.has_below(state.get(facts.stack_pointer))
    }

    /// Whether the entry at an address is of an outermost frame, or of a signal's.
    fn claims_nothing(&self, at: u64) -> bool {
        self.first_row(at).is_some_and(|(_, declared)| {
            declared.signal_frame || declared.return_address == Place::Undefined
        })
    }

    /// What a value is that is loaded from a known address: what the file has there.
    fn pointed_to(&self, value: Value) -> Option<u64> {
        let Known::Target(JumpTable {
            address,
            last: Some(0),
            entries: Entries::Addresses,
        }) = value.known()
        else {
            return None;
        };
        let text = Text(self.file());
        let pointer = text.bytes_from(address)?.first_chunk()?;
        Some(u64::from_le_bytes(*pointer))
    }

    /// The first row of the entry at an address, and what it says.
    pub(crate) fn first_row(&self, at: u64) -> Option<(RowId, &Declared)> {
        let extent = self.program().extent_at(at)?;
        let (_, fde) = self.fde_of(&extent)?;
        let row = self.table().rows(fde).next()?.row;
        Some((row, self.judge.declared(row)?))
    }

    /// The jumps of a unit out of their extents.
    fn jumps_out(&self, code: &Code) -> impl Iterator<Item = Vaddr> {
        let leaves = |insn: &InsnId| {
            let from = code.range(*insn).start;
            let (Flow::Jump(to) | Flow::Branch { to, .. }) = code.flow(*insn)? else {
                return None;
            };
            let extent = self.program().extent_at(from);
            let is_within = extent.is_some_and(|extent| extent.start < to && to < extent.end);
            (!is_within).then_some(Vaddr(from))
        };
        code.ids().filter_map(move |insn| leaves(&insn))
    }

    /// The preserved registers that are not what they were at entry: bit n stands for register n.
    fn lost_registers(&self, state: &State) -> u64 {
        let is_lost = |register: &&u8| {
            let value = state.get(**register);
            value != Value::at_entry(**register) && value != Value::UNKNOWN
        };
        let lost = self.facts().preserved.iter().filter(is_lost);
        lost.fold(0, |all, register| all | 1 << (register & 63))
    }
}

/// Where jumps may lead of which it is not known where they lead, and how code may be come into.
#[derive(Debug, Default)]
struct Guesses {
    /// A function that is not come into as functions are, and what holds there.
    begin: Option<(u64, State)>,
    /// Where code begins that nothing else leads to.
    starts: Vec<u64>,
    /// All instructions that nothing else leads to, ascending.
    unreached: Vec<u64>,
}

/// A way through the instructions of a unit and its rows at once.
pub(crate) struct Walk<'w, 's> {
    subject: &'w Subject<'s>,
    report: &'w mut UnitReport,
    /// Where the extents of the unit end, ascending.
    ends: Vec<u64>,
    /// The place of the row of the instruction.
    row: usize,
    /// Where the extent of the row ends.
    end: u64,
    /// Where the next row begins, or the extent ends.
    until: u64,
    /// What the row says.
    declared: Option<&'w Declared>,
    /// What of a state it speaks of.
    reads: u64,
    /// What was written since the row was judged.
    pending: u64,
    /// The addresses of the instruction looked at last.
    last: Range<u64>,
    /// The instructions, ascending, to which only guesses lead: nothing is refuted there.
    guessed: &'w [u64],
    /// Who made the unit.
    maker: Maker,
}

impl<'w, 's> Walk<'w, 's> {
    pub(crate) fn new(
        subject: &'w Subject<'s>,
        unit: usize,
        report: &'w mut UnitReport,
    ) -> Walk<'w, 's> {
        let extents = subject.program().unit(unit);
        let mut walk = Walk {
            subject,
            ends: extents.map(|extent| extent.end).collect(),
            report,
            row: 0,
            end: 0,
            until: 0,
            declared: None,
            reads: 0,
            pending: 0,
            last: 0..0,
            guessed: &[],
            maker: subject.maker_of(unit),
        };
        walk.read_row();
        walk
    }

    /// Looks at an instruction of which there is something to tell, perhaps; says which is the next.
    pub(crate) fn look(
        &mut self,
        analysis: &Analysis<'_>,
        insn: InsnId,
        state: &State,
        written: u64,
    ) -> Watch {
        let code = analysis.code();
        let (range, flow) = (code.range(insn), code.flow(insn));
        self.pending |= written;
        self.find_row(range.start);
        let is_guess = self.guessed.binary_search(&range.start).is_ok();
        if !is_guess {
            self.look_at_flow(analysis, insn, state);
        }
        // While the callee runs, the row of the call is this function's, too.
        let is_call = matches!(flow, Some(Flow::Call(_) | Flow::IndirectCall));
        let across = (self.declared)
            .filter(|row| is_call && self.subject.speaks_of_callee(row, state))
            .map(|_| analysis.while_called(state));
        if self.pending & self.reads != 0 || across.is_some() {
            self.pending = 0;
            let worst = match is_guess {
                true => Verdict::Unproven,
                false => Verdict::Refuted,
            };
            let mut judge = |state: &State| {
                self.subject
                    .judge_row(self.row, state, range.start, worst, self.report);
                self.report.doubts.len()
            };
            let before = judge(state);
            if let Some(state) = &across {
                judge(state);
                self.note_call(before);
            }
        }
        self.last = range;
        Watch {
            written: self.reads,
            until: self.until,
            calls: self.reads & self.subject.facts().clobbered != 0,
        }
    }

    /// Says what led to doubts, from a place on, that are about the time while a callee runs.
    fn note_call(&mut self, from: usize) {
        let doubts = self.report.doubts.get_mut(from..).unwrap_or_default();
        if let Some(declared) = self.declared {
            hint::across_call(&self.subject.judge, declared, doubts);
        }
    }

    /// Looks at where control goes from an instruction.
    fn look_at_flow(&mut self, analysis: &Analysis<'_>, insn: InsnId, state: &State) {
        let code = analysis.code();
        let (range, flow) = (code.range(insn), code.flow(insn));
        if let Some(flow) = flow {
            self.note_flow(range.start, flow, state);
        }
        if let Some(Flow::Return { .. }) = flow {
            self.look_at_return(range.start, analysis, state);
            self.look_at_lost(range.start, state);
        }
        let goes_on = matches!(flow, None | Some(Flow::Branch { .. }));
        if goes_on && self.is_outside(range.end) && !analysis.is_last_call(insn, state) {
            self.report
                .runs_out
                .push([range.start, range.end].map(Vaddr));
        }
        if self.maker == Maker::People {
            self.look_into_others(analysis, insn, state);
        }
    }

    /// Notes how control leaves by an instruction.
    fn note_flow(&mut self, at: u64, flow: Flow, state: &State) {
        let facts = self.subject.facts();
        let sp = facts.stack_pointer;
        let exit = match flow {
            Flow::Return { pops } => {
                let lost = (Vaddr(at), self.subject.lost_registers(state));
                self.report.returns.push(lost);
                let top = state.get(sp);
                let target = state.load(top).unwrap_or(Value::UNKNOWN);
                let left = top.plus(facts.call_pushes.into());
                self.exit(target, state, left.plus(pops.into()))
            }
            // The return address was popped.
            Flow::IndirectJump(register) => self.exit(state.get(register), state, state.get(sp)),
            _ => return,
        };
        match exit {
            Some(exit) => self.report.exits.push((Vaddr(at), exit)),
            None => self.report.others.push(Vaddr(at)),
        }
    }

    /// If `target` is the return address: how it is returned with the stack pointer `left`.
    fn exit(&self, target: Value, state: &State, left: Value) -> Option<Returns> {
        let facts = self.subject.facts();
        let behind = target.behind_return(facts.return_address)?;
        let cfa = Value::at_entry(facts.stack_pointer).plus(facts.call_pushes.into());
        let popped = left.distance_from(cfa)?;
        if behind > 0 {
            return (popped == 0).then_some(Returns::Behind(behind));
        }
        if popped == 0 && self.maker == Maker::People {
            let registers = (0..64).filter(|register| facts.clobbered >> register & 1 != 0);
            let kept =
                registers.filter(|register| state.get(*register) == Value::at_entry(*register));
            return Some(Returns::Keeps(
                kept.fold(0, |all, register| all | 1 << register),
            ));
        }
        if let Ok(pops) = u16::try_from(popped) {
            return Some(Returns::Pops(pops));
        }
        let saved = |at: i64| {
            let holds = state.load(cfa.plus(at)).unwrap_or(Value::UNKNOWN);
            let mut preserved = facts.preserved.iter().copied();
            preserved.find(|register| holds == Value::at_entry(*register))
        };
        let words = (1..=-popped / 8).map(|word| saved(-8 * word));
        (popped % 8 == 0).then(|| Words::new(words).map(Returns::Leaves))?
    }

    /// Looks at the functions in which control goes on from an instruction.
    fn look_into_others(&mut self, analysis: &Analysis<'_>, insn: InsnId, state: &State) {
        let code = analysis.code();
        let (range, flow) = (code.range(insn), code.flow(insn));
        match flow {
            Some(Flow::Jump(to) | Flow::Branch { to, .. }) => {
                self.look_ahead(analysis, &range, to, state);
            }
            Some(Flow::IndirectJump(register)) => {
                let target = analysis.behind(insn, state).get(register);
                if let Some(to) = self.subject.pointed_to(target) {
                    self.look_ahead(analysis, &range, to, state);
                }
            }
            _ => {}
        }
        let goes_on = matches!(flow, None | Some(Flow::Branch { .. }));
        if !goes_on || range.end < self.end {
            return;
        }
        self.report.others.push(Vaddr(range.start));
        if !code.is_padding(insn) {
            let behind = analysis.behind(insn, state);
            self.look_ahead(analysis, &range, range.end, &behind);
        }
    }

    /// Who goes on in another function than he was called as, with something on the stack, makes its first row false if that does
    /// not count it.
    fn look_ahead(&mut self, analysis: &Analysis<'_>, from: &Range<u64>, to: u64, state: &State) {
        let (facts, program) = (self.subject.facts(), self.subject.program());
        let sp = facts.stack_pointer;
        let is_own = program.containing(to) == program.containing(from.start);
        if is_own || !program.starts_function(to) {
            return;
        }
        let is_call = analysis.pushed(state).is_some();
        let pushed = Value::at_entry(sp).distance_from(state.get(sp));
        let Some(pushed @ 1..) = pushed.filter(|_| !is_call) else {
            return;
        };
        let Some((row, declared)) = self.subject.first_row(to) else {
            return;
        };
        let real = pushed + i64::from(facts.call_pushes);
        if matches!(declared.cfa, Place::Register(register, offset) if register == sp && offset != real)
        {
            self.report.doubts.push(Doubt {
                at: Vaddr(to),
                row,
                aspect: Aspect::Cfa,
                verdict: Verdict::Refuted,
                truth: Some(Place::Register(sp, real)),
                hint: None,
            });
            self.report.ahead.push((Vaddr(to), real));
        }
    }

    /// A row that says that nobody called is wrong where control returns to who did.
    fn look_at_return(&mut self, at: u64, analysis: &Analysis<'_>, state: &State) {
        let is_outermost = self
            .declared
            .is_some_and(|row| row.return_address == Place::Undefined && !row.signal_frame);
        if !is_outermost || !analysis.is_return(state) {
            return;
        }
        if let Some(row) = self.report.rows.get_mut(self.row) {
            let verdict = Verdict::Refuted;
            row.judgement = Some(Judgement {
                return_address: verdict,
                ..row.judgement.unwrap_or(Judgement::PROVEN)
            });
            self.report.doubts.push(Doubt {
                at: Vaddr(at),
                row: row.row,
                aspect: Aspect::ReturnAddress,
                verdict,
                truth: Some(Place::AtCfa(-i64::from(analysis.facts().call_pushes))),
                hint: None,
            });
        }
    }

    /// A register that a row says is saved, and that is not what it was when control returns, is lost: what is still in its slot,
    /// perhaps, is of no use to the caller.
    fn look_at_lost(&mut self, at: u64, state: &State) {
        let facts = self.subject.facts();
        let sp = facts.stack_pointer;
        let is_return = state.get(sp) == Value::at_entry(sp) && facts.is_return(state);
        let Some(declared) = self.declared.filter(|_| is_return) else {
            return;
        };
        let lost = self.subject.lost_registers(state);
        let Some(row) = self.report.rows.get_mut(self.row) else {
            return;
        };
        let claims = facts.preserved.iter().zip(&declared.preserved);
        for (place, (register, claim)) in claims.enumerate() {
            let is_lost = lost >> (register & 63) & 1 != 0;
            // What is in its slot no longer is told of the row as it is.
            let is_saved = matches!(*claim, Place::AtCfa(offset)
                if state.load(self.subject.judge.cfa_at_entry().plus(offset)) == Some(Value::at_entry(*register)));
            if !is_lost || !is_saved {
                continue;
            }
            let mut judgement = row.judgement.unwrap_or(Judgement::PROVEN);
            if let Some(verdict) = judgement.preserved.get_mut(place) {
                *verdict = Verdict::Refuted;
            }
            row.judgement = Some(judgement);
            self.report.doubts.push(Doubt {
                at: Vaddr(at),
                row: row.row,
                aspect: Aspect::Register(*register),
                verdict: Verdict::Refuted,
                truth: None,
                hint: Some(Hint::LostAtReturn),
            });
        }
    }

    /// Finds the row of the instruction at an address.
    fn find_row(&mut self, at: u64) {
        while let Some(next) = self.report.rows.get(self.row + 1)
            && next.start.0 <= at
        {
            if self.last.start < next.start.0 && next.start.0 < self.last.end {
                self.report.inside.push(next.start);
            }
            self.row += 1;
            self.read_row();
        }
    }

    fn read_row(&mut self) {
        let rows = &self.report.rows;
        let row = rows.get(self.row);
        self.declared = row.and_then(|row| self.subject.judge.declared(row.row));
        self.reads = self.declared.map_or(0, |row| row.reads);
        self.pending = u64::MAX;
        let next = rows.get(self.row + 1).map_or(u64::MAX, |next| next.start.0);
        let start = row.map_or(0, |row| row.start.0);
        let end = self.ends.partition_point(|end| *end <= start);
        self.end = self.ends.get(end).map_or(0, |end| *end);
        self.until = next.min(self.end);
    }

    /// Whether an instruction that ends at an address is the last of its extent, and no other extent follows.
    fn is_outside(&self, at: u64) -> bool {
        at >= self.end && self.subject.program().containing(at).is_none()
    }
}

fn doubts_of(
    judge: &Judge<'_>,
    row: RowId,
    found: &Judgement,
    state: &State,
    pc: u64,
) -> Vec<Doubt> {
    let facts = judge.facts;
    let declared = judge.declared(row);
    let claim =
        |aspect| declared.map_or(Place::Undefined, |declared| declared.claim(aspect, facts));
    let doubted = found.aspects(facts);
    let doubted = doubted.filter(|(_, verdict)| *verdict != Verdict::Proven);
    let doubts = doubted.map(|(aspect, verdict)| {
        let is_for_signals = matches!(
            claim(aspect),
            Place::AtCfa(offset) if judge.is_for_signals(judge.cfa_at_entry().plus(offset), state)
        );
        let truth = match aspect {
            // The slot that is declared does not count; the register itself may have it again.
            Aspect::Register(register) if is_for_signals => {
                let is_back = state.get(register) == Value::at_entry(register);
                is_back.then_some(Place::Register(register, 0))
            }
            Aspect::Cfa => judge
                .true_cfa(claim(aspect), state)
                .map(|(register, offset)| Place::Register(register, offset)),
            Aspect::ReturnAddress => judge.true_place(facts.return_address, claim(aspect), state),
            Aspect::Register(register) => judge.true_place(register, claim(aspect), state),
        };
        Doubt {
            at: Vaddr(pc),
            row,
            aspect,
            verdict,
            truth,
            hint: match is_for_signals {
                true => Some(Hint::BelowRedZone {
                    red_zone: facts.red_zone,
                }),
                false => hint::numbering(judge, row, aspect, truth, state),
            },
        }
    });
    doubts.collect()
}

/// Believes a table where the code alone does not say whether control comes somewhere.
pub(crate) struct ByTable<'s> {
    /// The rows of the unit, ascending.
    rows: &'s [RowVerdict],
    judge: &'s Judge<'s>,
    file: &'s ElfFile,
    maker: Maker,
    guesses: &'s [u64],
    begin: Option<&'s (u64, State)>,
}

impl<'s> ByTable<'s> {
    pub(crate) fn new(
        subject: &'s Subject<'s>,
        unit: usize,
        rows: &'s [RowVerdict],
    ) -> ByTable<'s> {
        ByTable {
            rows,
            judge: &subject.judge,
            file: subject.file(),
            maker: subject.maker_of(unit),
            guesses: &[],
            begin: None,
        }
    }

    /// The row that is declared for an address of the unit.
    pub(crate) fn declared_at(&self, address: u64) -> Option<&Declared> {
        let behind = self.rows.partition_point(|row| row.start.0 <= address);
        let row = self.rows.get(behind.checked_sub(1)?)?;
        self.judge.declared(row.row)
    }
}

impl Guide for ByTable<'_> {
    fn comes(&self, by: By, address: u64, state: &State) -> bool {
        let declared = self.declared_at(address);
        by == By::Jump && self.maker == Maker::People
            || declared.is_none_or(|declared| self.judge.cfa(declared, state) != Verdict::Refuted)
    }

    fn begin(&self, address: u64) -> Option<State> {
        let (_, state) = self.begin.filter(|(start, _)| *start == address)?;
        Some(state.clone())
    }

    fn entry(&self, address: u64) -> Option<State> {
        self.judge.entry(self.declared_at(address)?)
    }

    fn guesses(&self) -> &[u64] {
        self.guesses
    }

    fn is_function(&self, address: u64) -> bool {
        // A walk takes it for a frame of its own.
        let declared = self.declared_at(address);
        declared.is_some_and(|declared| declared.is_begin(self.judge.facts))
    }

    /// A breakpoint that people wrote among other code, which is no padding.
    fn resumes(&self, address: u64) -> bool {
        let breakpoint = self.judge.facts.breakpoint;
        let code = Text(self.file);
        let bytes = code.bytes_from(address).unwrap_or_default();
        let rest = bytes.strip_prefix(breakpoint).unwrap_or_default();
        self.maker == Maker::People && !rest.is_empty() && !rest.starts_with(breakpoint)
    }

    fn args_size(&self, address: u64, _: Value) -> u64 {
        let declared = self.declared_at(address);
        declared.map_or(0, |declared| declared.args_size)
    }
}
