//! Makes unwind tables for code without one.
//!
//! Functions are found by symbols, by calls, and by the program's entry point. The row before each
//! instruction is the one that the analysis proves. Without a symbol's size, a function is only
//! assumed; unreached code is assumed to begin as a function does. The exits ([`crate::exits`])
//! must confirm such assumptions, or there are no rows.

use core::ops::Range;
use std::collections::{HashMap, HashSet};

use unspool_code_analysis::arch::AbiInfo;
use unspool_code_analysis::op::Op;
use unspool_code_analysis::rows::SavedLocation;
use unspool_code_analysis::{
    AbstractState, AbstractValue, Analyzer, Assumptions, CodeExtent, CodeImage as _, ExtentKind,
    Lifter, MissingRow, ProgramCode, ProvenRules,
};
use unspool_elf::{ElfFile, Symbols};
use unspool_rows::table::{FdeHeader, RowStart, TableError};
use unspool_rows::{Arch, RowId, Table, Vaddr};

use crate::lsda::{Lsda, lsdas};

use crate::elf_code_image::ElfCodeImage;
use crate::exits::JumpDestination;
use crate::extents::{
    FUNCTION_ALIGNMENT_BYTES, certain_starts, fall_through_runs, subtract_ranges,
};
use crate::functions::{CodeReferences, FunctionExtent, code_ranges, entry_point, named_functions};
use crate::go_rows;
use crate::landing_pads::{self, LandingPads};
use crate::noreturn::noreturn_addresses;
use crate::partition::{UnitAnalyzer, UnitSummaries, partition};
use crate::plt::plt_header;
use crate::unit_rows::{
    CallDepth, InsnRow, RowInterner, RowSpan, UnitRows, UnitSummary, spans, within,
};

/// A synthesized table, and its coverage of the code.
#[derive(Debug)]
pub struct Synthesis {
    /// The rows. An address without a proven row is in no entry.
    pub table: Table,
    /// Functions, and code that may be one, ascending.
    pub functions: Vec<FunctionCoverage>,
}

/// The result for a function, or for code that may be one.
#[derive(Debug, Clone)]
pub struct FunctionCoverage {
    /// Its symbol; empty if it has none.
    pub name: String,
    /// First address.
    pub start: Vaddr,
    /// One past the last address.
    pub end: Vaddr,
    /// Number of instructions, without unreached padding.
    pub instructions: usize,
    /// Number of instructions with a row.
    pub instructions_with_row: usize,
    /// The first instruction without a row, and the reason.
    pub first_without_row: Option<(Vaddr, MissingReason)>,
}

/// Why an instruction has no row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MissingReason {
    /// No row is proven there.
    #[error(transparent)]
    Row(#[from] MissingRow),
    /// An exit does not leave the stack and the registers as a caller left them: it may not be a
    /// function.
    #[error("no symbol says that this is a function, and its exit at {0} is not like a function's")]
    ContradictedByExit(Vaddr),
    /// It is unreached, and no exit confirms that it begins as a function does.
    #[error("no known path leads here, and nothing here returns")]
    NoSupportingExit,
}

/// Why there is no table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SynthesisError {
    /// The architecture is not supported.
    #[error("{} code is not supported; x86-64 code is", .0.spec().name)]
    Arch(Arch),
    /// The search for jumps between functions has no fixpoint in reasonable time.
    #[error("the code jumps between functions too often to be followed; compilers' code does not")]
    NoFixpoint,
    /// The table is too large.
    #[error(transparent)]
    Table(#[from] TableError),
}

/// Makes rows for a file's code outside of `covered`, ranges that ascend. Those of Go functions
/// follow from Go's own table of frame sizes. `symbols` name the other functions:
/// the file's own symbols, or also those of its separate debug file.
///
/// # Errors
///
/// The architecture is not supported, or the table is too large.
pub fn synthesize(
    file: &ElfFile,
    symbols: &Symbols,
    covered: &[Range<u64>],
) -> Result<Synthesis, SynthesisError> {
    let go = go_rows::functions(file, covered);
    if go.is_empty() {
        return synthesize_from_code(file, symbols, covered);
    }
    let ranges = go
        .iter()
        .map(|function| function.range.start.0..function.range.end.0);
    let mut all: Vec<Range<u64>> = covered.iter().cloned().chain(ranges).collect();
    all.sort_unstable_by_key(|range| range.start);
    let mut made = synthesize_from_code(file, symbols, &all)?;
    go_rows::add(&mut made.table, file, &go)?;
    Ok(made)
}

/// Makes rows by analysing the code outside of `covered`.
fn synthesize_from_code(
    file: &ElfFile,
    symbols: &Symbols,
    covered: &[Range<u64>],
) -> Result<Synthesis, SynthesisError> {
    let machine = || Lifter::new(file.abi()).ok_or(SynthesisError::Arch(file.abi().arch));
    let mut tools = UnitAnalyzer {
        file,
        lifter: machine()?,
        analyzer: Analyzer::new(machine()?),
        rows: RowInterner::default(),
        landings: LandingPads::default(),
    };
    let gaps = subtract_ranges(&code_ranges(file), covered);
    let seen = CodeReferences::scan(file, &gaps, &mut tools.lifter);
    let known = named_functions(symbols, &gaps, &seen);
    let names: HashMap<u64, &FunctionExtent> = known
        .iter()
        .map(|function| (function.extent.start, function))
        .collect();
    let is_sized = |extent: &CodeExtent| {
        let function = names.get(&extent.start);
        function.is_some_and(|function| function.has_size)
    };
    let mut lost = noreturn_addresses(file, symbols);
    let entry = entry_point(file, symbols);
    let starts = certain_starts(file, entry, &seen, &known);
    let found = partition(&mut tools, &gaps, &starts, is_sized, &mut lost);
    let (mut program, mut descriptions) = found.ok_or(SynthesisError::NoFixpoint)?;
    let code = SynthesisInput {
        file,
        entry,
        first_stub: plt_header(file),
        gaps: &gaps,
        names: &names,
        references: &seen,
        noreturn: &lost,
    };
    // A table's entry names its function's LSDA.
    let areas = match covered {
        [] => lsdas(file),
        _ => HashSet::new(),
    };
    let work = code.synthesize_units(&mut tools, &program, &descriptions)?;
    tools.landings = work.landings(&mut tools, &areas, &descriptions);
    if tools.landings.is_empty() {
        return work.finish();
    }
    if !reanalyze_with_pads(&mut tools, &mut program, &mut descriptions) {
        return Err(SynthesisError::NoFixpoint);
    }
    code.synthesize_units(&mut tools, &program, &descriptions)?
        .finish()
}

/// Analyzes landing pads again, together with their functions. Returns whether there is a fixpoint.
fn reanalyze_with_pads(
    analyzer: &mut UnitAnalyzer<'_>,
    program: &mut ProgramCode,
    summaries: &mut UnitSummaries,
) -> bool {
    program.unite(analyzer.landings.joins(program));
    let landings = analyzer.landings.as_slice().iter();
    let units = landings.filter_map(|landing| program.unit_of(landing.pad));
    analyzer.analyze_to_fixpoint(program, units.collect(), summaries)
}

/// Assumes that one unreached address is entered, mostly as by a call, in this state.
struct AssumedEntry<'l> {
    at: u64,
    state: AbstractState,
    landings: &'l LandingPads,
}

impl Assumptions for AssumedEntry<'_> {
    fn fragment_entry_state(&self, address: u64) -> Option<AbstractState> {
        (address == self.at).then(|| self.state.clone())
    }

    fn args_size(&self, address: u64, sp: AbstractValue) -> u64 {
        self.landings.args_size(address, sp)
    }
}

/// Destination of a jump from unreached code.
fn goal(program: &ProgramCode, reached: &[Range<u64>], to: u64) -> JumpDestination {
    let place = reached.partition_point(|range| range.end <= to);
    let is_reached = reached.get(place).is_some_and(|range| range.start <= to);
    match is_reached {
        _ if program.is_call_target(to) => JumpDestination::Function,
        true => JumpDestination::MiddleOfFunction,
        false => JumpDestination::Unknown,
    }
}

/// Instructions of one unit tried as starts of unreached functions.
const MAX_TRIED_INSNS: usize = 1 << 20;

/// Knowledge about a file's code before its units are analysed.
struct SynthesisInput<'k> {
    file: &'k ElfFile,
    /// The program's entry point.
    entry: Option<u64>,
    /// The PLT header.
    first_stub: Option<u64>,
    /// Code that gets rows, ascending.
    gaps: &'k [Range<u64>],
    /// Named functions, by start.
    names: &'k HashMap<u64, &'k FunctionExtent>,
    references: &'k CodeReferences,
    /// Functions that never return.
    noreturn: &'k HashSet<u64>,
}

impl<'k> SynthesisInput<'k> {
    /// Makes rows from the results for a program's units, and for unreached code.
    fn synthesize_units(
        &'k self,
        analyzer: &mut UnitAnalyzer<'_>,
        program: &'k ProgramCode,
        summaries: &UnitSummaries,
    ) -> Result<Synthesizer<'k>, TableError> {
        let mut work = Synthesizer {
            input: self,
            program,
            abi_info: analyzer.analyzer.abi_info(),
            table: Table::new(self.file.abi()),
            row_ids: HashMap::new(),
            entries: Vec::new(),
            reached_ranges: Vec::new(),
            depths: Vec::new(),
            last_assumed_end: 0,
            functions: Vec::new(),
        };
        for unit in 0..program.unit_count() {
            let first = program.unit(unit).next();
            let description = first.and_then(|first| summaries.get(&first.start));
            if let Some(description) = description {
                work.add_unit(description, unit, &analyzer.rows)?;
            }
        }
        work.reached_ranges
            .sort_unstable_by_key(|range| range.start);
        work.add_unreached(analyzer)?;
        Ok(work)
    }
}

/// The work on one file.
struct Synthesizer<'w> {
    input: &'w SynthesisInput<'w>,
    /// The reached code, and everything else in the same ranges.
    program: &'w ProgramCode,
    abi_info: &'static AbiInfo,
    table: Table,
    /// The rows of the table, by number.
    row_ids: HashMap<u32, RowId>,
    /// The entries of the new table: their ends and rows.
    entries: Vec<(u64, Vec<RowStart>)>,
    /// Reached code; ascending once all reached code was processed.
    reached_ranges: Vec<Range<u64>>,
    /// The calls of unreached code.
    depths: Vec<CallDepth>,
    /// End of the last code that was assumed to be a function.
    last_assumed_end: u64,
    functions: Vec<FunctionCoverage>,
}

impl Synthesizer<'_> {
    /// Adds a reached unit. If it is not certain that it is entered as by a call, its exits must
    /// confirm that.
    fn add_unit(
        &mut self,
        summary: &UnitSummary,
        unit: usize,
        rows: &RowInterner,
    ) -> Result<(), TableError> {
        let (program, names) = (self.program, self.input.names);
        let is_certain = |extent: CodeExtent| {
            let entries = program.extra_entries_in(extent.start..extent.end);
            let function = names.get(&extent.start);
            function.is_some_and(|function| function.has_size)
                || extent.kind == ExtentKind::Fragment && entries.is_empty()
        };
        let spans = &summary.spans;
        for span in spans.iter().filter(|span| span.is_reached()) {
            match self.reached_ranges.last_mut() {
                Some(last) if last.end == span.range.start => last.end = span.range.end,
                _ => self.reached_ranges.push(span.range.clone()),
            }
        }
        let ways = summary
            .exits
            .evidence(program, |_| JumpDestination::Unknown);
        let against = ways
            .contradicting
            .filter(|_| !program.unit(unit).all(is_certain));
        let refused = against.map(|at| MissingReason::ContradictedByExit(Vaddr(at)));
        for extent in program.unit(unit) {
            let own = within(spans, &extent);
            if refused.is_none() {
                self.add_entries(own, rows)?;
            }
            if extent.kind == ExtentKind::Function || names.contains_key(&extent.start) {
                self.add_coverage(own, refused);
            }
        }
        Ok(())
    }

    /// Adds unreached code.
    fn add_unreached(&mut self, analyzer: &mut UnitAnalyzer<'_>) -> Result<(), TableError> {
        let known = self.input;
        let never_returns = |address| known.noreturn.contains(&address);
        let rest = subtract_ranges(known.gaps, &self.reached_ranges).into_iter();
        let rest = rest.flat_map(|range| {
            fall_through_runs(known.file, range, &mut analyzer.lifter, never_returns)
        });
        let rest: Vec<CodeExtent> = rest.collect();
        let text = ElfCodeImage(known.file);
        let mut rest =
            ProgramCode::scan(&mut analyzer.lifter, &text, rest, Vec::new(), never_returns);
        rest.unite(analyzer.landings.joins(&rest));
        for unit in 0..rest.unit_count() {
            self.add_assumed_functions(analyzer, &rest, unit)?;
        }
        Ok(())
    }

    /// Adds the parts of an unreached unit that their exits confirm to be functions.
    fn add_assumed_functions(
        &mut self,
        analyzer: &mut UnitAnalyzer<'_>,
        rest: &ProgramCode,
        unit: usize,
    ) -> Result<(), TableError> {
        let mut tries = MAX_TRIED_INSNS;
        let mut known: HashMap<u64, Result<u32, MissingRow>> = HashMap::new();
        for extent in rest.unit(unit) {
            let start = extent.start;
            let may_begin = start % FUNCTION_ALIGNMENT_BYTES == 0
                || self.input.references.is_taken(start)
                || self.is_end(start)
                || self.last_assumed_end == start;
            if !may_begin || known.contains_key(&extent.start) {
                continue;
            }
            let is_first_stub = self.input.first_stub == Some(start);
            let mut state = analyzer.analyzer.entry();
            if is_first_stub {
                let (sp, pushed) = (
                    self.abi_info.stack_pointer,
                    -i64::from(self.abi_info.call_pushes),
                );
                state.set(sp, state.get(sp).plus(pushed));
            }
            let guide = AssumedEntry {
                at: extent.start,
                state,
                landings: &analyzer.landings,
            };
            let text = ElfCodeImage(self.input.file);
            let landings = analyzer.landings.as_slice();
            let analysis = analyzer
                .analyzer
                .analyze(rest, &text, unit, landings, &guide);
            let described = UnitRows::from_analysis(&analysis, rest, &mut analyzer.rows, |_, _| {});
            let mut insns = described.insns;
            tries = tries.saturating_sub(insns.len());
            let outside = |to| goal(self.program, &self.reached_ranges, to);
            let ways = described.exits.evidence(rest, outside);
            // Code shared with another function needs the same row in both.
            let is_other = |insn: &&InsnRow| {
                let row = known.get(&insn.range.start);
                insn.is_reached() && row.is_some_and(|row| *row != insn.row)
            };
            let other = insns.iter().find(is_other);
            let against = ways.contradicting.or(other.map(|insn| insn.range.start));
            let refused = match against {
                _ if tries == 0 => Some(MissingReason::NoSupportingExit),
                _ if is_first_stub => None,
                Some(at) => Some(MissingReason::ContradictedByExit(Vaddr(at))),
                None if ways.supporting > 0 => None,
                None if self.begins_function(start, &mut analyzer.lifter) => None,
                None => Some(MissingReason::NoSupportingExit),
            };
            let starts = || rest.unit(unit).map(|extent| extent.start);
            if refused.is_some() {
                self.add_coverage(within(&spans(&insns, starts()), &extent), refused);
                continue;
            }
            insns.retain(|insn| insn.is_reached() && !known.contains_key(&insn.range.start));
            let spans = spans(&insns, starts());
            for extent in rest.unit(unit) {
                self.add_entries(within(&spans, &extent), &analyzer.rows)?;
            }
            self.add_coverage(&spans, None);
            self.depths.extend(described.depths);
            self.last_assumed_end = insns.last().map_or(0, |last| last.range.end);
            known.extend(insns.into_iter().map(|insn| (insn.range.start, insn.row)));
        }
        Ok(())
    }

    /// Whether a function that never returns begins at an unreached start: something refers to it,
    /// it is aligned, and it saves a register that calls preserve. musl's threads begin in one.
    fn begins_function(&self, start: u64, lifter: &mut Lifter) -> bool {
        /// The most instructions before the first save.
        const MAX_INSNS: usize = 4;
        if !start.is_multiple_of(FUNCTION_ALIGNMENT_BYTES) || !self.input.references.is_taken(start)
        {
            return false;
        }
        let abi_info = self.abi_info;
        let saves = |op: &Op| {
            matches!(op, Op::Store { base, from, .. }
                if *base == abi_info.stack_pointer && abi_info.preserved.contains(from))
        };
        let (mut at, mut ops) = (start, Vec::new());
        for _ in 0..MAX_INSNS {
            let rest = self.input.file.rest_at(Vaddr(at)).unwrap_or_default();
            let insn = lifter.decode(rest, at, &mut ops);
            if ops.iter().any(saves) {
                return true;
            }
            match insn {
                Some(insn) if insn.flow.is_none() => at += insn.length as u64,
                _ => return false,
            }
        }
        false
    }

    /// Finds landing pads in LSDAs with unknown functions.
    fn landings(
        &self,
        analyzer: &mut UnitAnalyzer<'_>,
        areas: &HashSet<Lsda>,
        summaries: &UnitSummaries,
    ) -> LandingPads {
        if areas.is_empty() {
            return LandingPads::default();
        }
        let mut depths = self.depths.clone();
        for description in summaries.values() {
            depths.extend_from_slice(&description.depths);
        }
        depths.sort_unstable();
        depths.dedup();
        let extents = self.program.extents().iter();
        let functions = extents.filter(|extent| extent.kind == ExtentKind::Function);
        let functions = functions.map(|extent| extent.start);
        let entries = self.program.extra_entries_in(0..u64::MAX).iter().copied();
        let assumed = self
            .functions
            .iter()
            .filter(|function| function.instructions_with_row > 0);
        let assumed = assumed.map(|function| function.start.0);
        let mut starts: Vec<u64> = functions.chain(entries).chain(assumed).collect();
        starts.sort_unstable();
        starts.dedup();
        let mut reached = self.reached_ranges.clone();
        reached.extend(
            self.entries
                .iter()
                .map(|(end, rows)| rows.first().map_or(*end, |row| row.start.0)..*end),
        );
        reached.sort_unstable_by_key(|range| range.start);
        let mut merged: Vec<Range<u64>> = Vec::new();
        for range in reached {
            match merged.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        let known = landing_pads::PadSearchInput {
            file: self.input.file,
            abi_info: self.abi_info,
            ranges: self.input.gaps,
            program: self.program,
            references: self.input.references,
            starts: &starts,
            reached_ranges: &merged,
            depths: &depths,
        };
        landing_pads::landings(&known, &mut analyzer.lifter, areas)
    }

    /// Whether code ends at an address that is known to be reached.
    fn is_end(&self, address: u64) -> bool {
        let place = self
            .reached_ranges
            .binary_search_by_key(&address, |range| range.end);
        place.is_ok()
    }

    /// Makes entries from the rows of consecutive instructions.
    fn add_entries(&mut self, spans: &[RowSpan], rows: &RowInterner) -> Result<(), TableError> {
        let file = self.input.file;
        let start = spans.first().map_or(0, |first| first.range.start);
        if ElfCodeImage(file)
            .bytes_from(start)
            .is_some_and(|code| code.starts_with(self.abi_info.sigreturn_code))
        {
            return Ok(());
        }
        let is_entry_code = self.input.entry == Some(start);
        let mut last = None;
        let mut end = None;
        for span in spans {
            if end.replace(span.range.end) != Some(span.range.start) {
                last = None;
            }
            let Ok(row) = span.row else {
                // Padding within a function does not split it.
                last = last.filter(|_| span.is_unreached_padding);
                continue;
            };
            if last != Some(row) {
                let start = RowStart {
                    start: Vaddr(span.range.start),
                    row: self.row_id(row, rows, is_entry_code)?,
                };
                match self.entries.last_mut().filter(|_| last.is_some()) {
                    Some((_, rows)) => rows.push(start),
                    None => self.entries.push((0, vec![start])),
                }
                last = Some(row);
            }
            if let Some((end, _)) = self.entries.last_mut() {
                *end = span.range.end;
            }
        }
        Ok(())
    }

    /// The table's row for a number. At the program's entry point, which nothing calls, it has no
    /// return address.
    fn row_id(
        &mut self,
        row: u32,
        rows: &RowInterner,
        is_entry: bool,
    ) -> Result<RowId, TableError> {
        if let Some(id) = self.row_ids.get(&row).filter(|_| !is_entry) {
            return Ok(*id);
        }
        let mut rules = rows
            .get(row)
            .unwrap_or_else(|| ProvenRules::function_entry(self.abi_info));
        if is_entry {
            rules.return_address = SavedLocation::Undefined;
            return rules.intern(&mut self.table, self.abi_info);
        }
        let id = rules.intern(&mut self.table, self.abi_info)?;
        self.row_ids.insert(row, id);
        Ok(id)
    }

    fn add_coverage(&mut self, spans: &[RowSpan], refused: Option<MissingReason>) {
        let missing = |span: &RowSpan| refused.or(span.row.err().map(MissingReason::Row));
        let mut code = spans.iter().filter(|span| !span.is_unreached_padding);
        let ends = code.clone().next().zip(code.clone().next_back());
        let Some((first, last)) = ends else { return };
        let start = first.range.start;
        let names = self.input.names;
        let described = code.clone().filter(|span| missing(span).is_none());
        self.functions.push(FunctionCoverage {
            name: names
                .get(&start)
                .map_or_else(String::new, |function| function.name.clone()),
            start: Vaddr(start),
            end: Vaddr(last.range.end),
            instructions: code.clone().map(|span| span.len).sum(),
            instructions_with_row: described.map(|span| span.len).sum(),
            first_without_row: code
                .find_map(|span| Some((Vaddr(span.range.start), missing(span)?))),
        });
    }

    fn finish(mut self) -> Result<Synthesis, SynthesisError> {
        let start = |rows: &[RowStart]| rows.first().map_or(Vaddr(0), |row| row.start);
        self.entries.sort_unstable_by_key(|(_, rows)| start(rows));
        // Of overlapping instructions, only one is meant.
        let mut covered = Vaddr(0);
        self.entries.retain(|(end, rows)| {
            let is_free = covered <= start(rows);
            if is_free {
                covered = Vaddr(*end);
            }
            is_free
        });
        for (end, rows) in &self.entries {
            let header = FdeHeader {
                start: start(rows),
                end: Vaddr(*end),
                personality: None,
                lsda: None,
                origin: 0,
            };
            self.table.push(header, rows)?;
        }
        self.functions.sort_by_key(|function| function.start);
        Ok(Synthesis {
            table: self.table,
            functions: self.functions,
        })
    }
}
