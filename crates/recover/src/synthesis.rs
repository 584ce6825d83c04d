//! Unwind tables for code that no table covers.
//!
//! Functions are found by symbols, by calls, and by where the program begins. What the analysis then proves before each
//! instruction is its row. Where no symbol says how far a function reaches, it is no more than an assumption that it is
//! one; and of code that nothing is known to lead to it is assumed that it begins as a function does. Such assumptions
//! must be borne out by the ways out ([`crate::ways_out`]), or there are no rows.

use core::ops::Range;
use std::collections::{HashMap, HashSet};

use unspool_ir::table::{FdeHeader, RowStart, TableError};
use unspool_ir::{Arch, RowId, Table, Vaddr};
use unspool_module::{ElfFile, Symbols};
use unspool_synth::arch::Facts;
use unspool_synth::rows::Saved;
use unspool_synth::{
    Analyzer, Extent, Guide, Image as _, Machine, NoRow, Part, Program, Rules, State, Value,
};

use crate::areas::{Area, areas};

use crate::cuts::{FUNCTION_ALIGNMENT, runs, starts, without};
use crate::described::{Depth, Described, Description, Insn, Rows, Span, spans, within};
use crate::functions::{Function, Sightings, code_ranges, entry, named};
use crate::noreturn::never_returning;
use crate::pads::{self, Landings};
use crate::partition::{Descriptions, Tools, partition};
use crate::stubs::first_stub;
use crate::text::Text;
use crate::ways_out::Goal;

/// A table that was made of code, and how much of the code it covers.
#[derive(Debug)]
pub struct Synthesis {
    /// The rows. An address is in no entry if no row is proven there.
    pub table: Table,
    /// The functions that were found, and code that may be one, ascending.
    pub functions: Vec<Recovered>,
}

/// What became of a function, or of code that may be one.
#[derive(Debug, Clone)]
pub struct Recovered {
    /// Its symbol; empty if it has none.
    pub name: String,
    /// First address.
    pub start: Vaddr,
    /// One past the last address.
    pub end: Vaddr,
    /// Its instructions, without padding that nothing leads to.
    pub instructions: usize,
    /// Those that got a row.
    pub described: usize,
    /// Why the first of the others got none, and where that is.
    pub missing: Option<(Vaddr, Missing)>,
}

/// Why an instruction has no row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// Nothing is proven there that a row could say.
    #[error(transparent)]
    Row(#[from] NoRow),
    /// The function does not leave the stack and the registers as a caller left them, so that it may be none.
    #[error("no symbol says that this is a function, and its exit at {0} is not like a function's")]
    NotBorneOut(Vaddr),
    /// Nothing leads there, and no way out bears out that it begins as a function does.
    #[error("no known path leads here, and nothing here returns")]
    NoWayOut,
}

/// Why there is no table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SynthesisError {
    /// The machine's instructions are not known.
    #[error("{} code is not supported; x86-64 code is", .0.spec().name)]
    Arch(Arch),
    /// Jumps lead from function to function without end.
    #[error("the code jumps between functions too often to be followed; compilers' code does not")]
    Tangled,
    /// There is too much of it.
    #[error(transparent)]
    Table(#[from] TableError),
}

/// Makes rows for the code of a file that is not in `covered`, ranges that ascend. `symbols` say where functions are: the
/// file's own, or those of its separate debug file, too.
///
/// # Errors
///
/// The machine is not known, or the table is too large.
pub fn synthesize(
    file: &ElfFile,
    symbols: &Symbols,
    covered: &[Range<u64>],
) -> Result<Synthesis, SynthesisError> {
    let machine = || Machine::of(file.abi()).ok_or(SynthesisError::Arch(file.abi().arch));
    let mut tools = Tools {
        file,
        scanner: machine()?,
        analyzer: Analyzer::new(machine()?),
        rows: Rows::default(),
        landings: Landings::default(),
    };
    let gaps = without(&code_ranges(file), covered);
    let seen = Sightings::of(file, &gaps, &mut tools.scanner);
    let known = named(symbols, &gaps, &seen);
    let names: HashMap<u64, &Function> = known
        .iter()
        .map(|function| (function.extent.start, function))
        .collect();
    let is_sized = |extent: &Extent| {
        let function = names.get(&extent.start);
        function.is_some_and(|function| function.has_size)
    };
    let mut lost = never_returning(file, symbols);
    let entry = entry(file, symbols);
    let starts = starts(file, entry, &seen, &known);
    let found = partition(&mut tools, &gaps, &starts, is_sized, &mut lost);
    let (mut program, mut descriptions) = found.ok_or(SynthesisError::Tangled)?;
    let code = Known {
        file,
        entry,
        first_stub: first_stub(file),
        gaps: &gaps,
        names: &names,
        seen: &seen,
        lost: &lost,
    };
    // An entry of a table names the area of its function.
    let areas = match covered {
        [] => areas(file),
        _ => HashSet::new(),
    };
    let work = code.work(&mut tools, &program, &descriptions)?;
    tools.landings = work.landings(&mut tools, &areas, &descriptions);
    if tools.landings.is_empty() {
        return work.finish();
    }
    if !land(&mut tools, &mut program, &mut descriptions) {
        return Err(SynthesisError::Tangled);
    }
    code.work(&mut tools, &program, &descriptions)?.finish()
}

/// Looks again at what exceptions land in, together with where they come from; whether that comes to an end.
fn land(tools: &mut Tools<'_>, program: &mut Program, descriptions: &mut Descriptions) -> bool {
    program.unite(tools.landings.joins(program));
    let landings = tools.landings.as_slice().iter();
    let units = landings.filter_map(|landing| program.unit_of(landing.pad));
    tools.settle(program, units.collect(), descriptions)
}

/// Assumes of one place that nothing leads to that it is come into: as after a call, mostly. This is the state then.
struct AsCalled<'l> {
    at: u64,
    state: State,
    landings: &'l Landings,
}

impl Guide for AsCalled<'_> {
    fn entry(&self, address: u64) -> Option<State> {
        (address == self.at).then(|| self.state.clone())
    }

    fn args_size(&self, address: u64, sp: Value) -> u64 {
        self.landings.args_size(address, sp)
    }
}

/// Where a jump leads that nothing is known to lead to.
fn goal(program: &Program, reached: &[Range<u64>], to: u64) -> Goal {
    let place = reached.partition_point(|range| range.end <= to);
    let is_reached = reached.get(place).is_some_and(|range| range.start <= to);
    match is_reached {
        _ if program.is_come_into(to) => Goal::Function,
        true => Goal::Inside,
        false => Goal::Unknown,
    }
}

/// So many instructions of one unit are looked at for where functions may begin that nothing leads to.
const MOST_TRIES: usize = 1 << 20;

/// What is known of a file's code but for what looking at its units tells.
struct Known<'k> {
    file: &'k ElfFile,
    /// Where the program begins.
    entry: Option<u64>,
    /// The first stub of its procedure linkage table.
    first_stub: Option<u64>,
    /// Where code is that gets rows, ascending.
    gaps: &'k [Range<u64>],
    /// Functions that symbols name, by their starts.
    names: &'k HashMap<u64, &'k Function>,
    seen: &'k Sightings,
    /// Functions that never return.
    lost: &'k HashSet<u64>,
}

impl<'k> Known<'k> {
    /// Makes rows of what was found of a program's units, and of what nothing is known to lead to.
    fn work(
        &'k self,
        tools: &mut Tools<'_>,
        program: &'k Program,
        descriptions: &Descriptions,
    ) -> Result<Work<'k>, TableError> {
        let mut work = Work {
            known: self,
            program,
            facts: tools.analyzer.facts(),
            table: Table::new(self.file.abi()),
            row_ids: HashMap::new(),
            entries: Vec::new(),
            reached: Vec::new(),
            depths: Vec::new(),
            end: 0,
            functions: Vec::new(),
        };
        for unit in 0..program.units() {
            let first = program.unit(unit).next();
            let description = first.and_then(|first| descriptions.get(&first.start));
            if let Some(description) = description {
                work.describe(description, unit, &tools.rows)?;
            }
        }
        work.reached.sort_unstable_by_key(|range| range.start);
        work.describe_rest(tools)?;
        Ok(work)
    }
}

/// The work on one file.
struct Work<'w> {
    known: &'w Known<'w>,
    /// The code that something is known to lead to, and what else is in the same ranges.
    program: &'w Program,
    facts: &'static Facts,
    table: Table,
    /// The rows of the table, by their numbers.
    row_ids: HashMap<u32, RowId>,
    /// The entries of the table to be: where they end, and their rows.
    entries: Vec<(u64, Vec<RowStart>)>,
    /// Code that something is known to lead to; ascends once all that is known was looked at.
    reached: Vec<Range<u64>>,
    /// The calls of code that nothing is known to lead to.
    depths: Vec<Depth>,
    /// Where the code ends that was assumed last to be a function's.
    end: u64,
    functions: Vec<Recovered>,
}

impl Work<'_> {
    /// Describes a unit that something is known to lead to. If it is not certain that it is come into as after a call,
    /// that must be borne out.
    fn describe(
        &mut self,
        description: &Description,
        unit: usize,
        rows: &Rows,
    ) -> Result<(), TableError> {
        let (program, names) = (self.program, self.known.names);
        let is_certain = |extent: Extent| {
            let entries = program.entries_in(extent.start..extent.end);
            let function = names.get(&extent.start);
            function.is_some_and(|function| function.has_size)
                || extent.part == Part::Fragment && entries.is_empty()
        };
        let spans = &description.spans;
        for span in spans.iter().filter(|span| span.is_reached()) {
            match self.reached.last_mut() {
                Some(last) if last.end == span.range.start => last.end = span.range.end,
                _ => self.reached.push(span.range.clone()),
            }
        }
        let ways = description.ways.verdict(program, |_| Goal::Unknown);
        let against = ways.against.filter(|_| !program.unit(unit).all(is_certain));
        let refused = against.map(|at| Missing::NotBorneOut(Vaddr(at)));
        for extent in program.unit(unit) {
            let own = within(spans, &extent);
            if refused.is_none() {
                self.enter(own, rows)?;
            }
            if extent.part == Part::Function || names.contains_key(&extent.start) {
                self.report(own, refused);
            }
        }
        Ok(())
    }

    /// Describes what nothing is known to lead to.
    fn describe_rest(&mut self, tools: &mut Tools<'_>) -> Result<(), TableError> {
        let known = self.known;
        let never_returns = |address| known.lost.contains(&address);
        let rest = without(known.gaps, &self.reached).into_iter();
        let rest =
            rest.flat_map(|range| runs(known.file, range, &mut tools.scanner, never_returns));
        let rest: Vec<Extent> = rest.collect();
        let text = Text(known.file);
        let mut rest = Program::survey(&mut tools.scanner, &text, rest, Vec::new(), never_returns);
        rest.unite(tools.landings.joins(&rest));
        for unit in 0..rest.units() {
            self.describe_assumed(tools, &rest, unit)?;
        }
        Ok(())
    }

    /// Describes what of a unit, that nothing is known to lead to, is borne out to begin as a function does.
    fn describe_assumed(
        &mut self,
        tools: &mut Tools<'_>,
        rest: &Program,
        unit: usize,
    ) -> Result<(), TableError> {
        let mut tries = MOST_TRIES;
        let mut known: HashMap<u64, Result<u32, NoRow>> = HashMap::new();
        for extent in rest.unit(unit) {
            let start = extent.start;
            let may_begin = start % FUNCTION_ALIGNMENT == 0
                || self.known.seen.is_taken(start)
                || self.is_end(start)
                || self.end == start;
            if !may_begin || known.contains_key(&extent.start) {
                continue;
            }
            let is_first_stub = self.known.first_stub == Some(start);
            let mut state = tools.analyzer.entry();
            if is_first_stub {
                let (sp, pushed) = (self.facts.stack_pointer, -i64::from(self.facts.call_pushes));
                state.set(sp, state.get(sp).plus(pushed));
            }
            let guide = AsCalled {
                at: extent.start,
                state,
                landings: &tools.landings,
            };
            let text = Text(self.known.file);
            let landings = tools.landings.as_slice();
            let analysis = tools.analyzer.analyze(rest, &text, unit, landings, &guide);
            let described = Described::of(&analysis, rest, &mut tools.rows, |_, _| {});
            let mut insns = described.insns;
            tries = tries.saturating_sub(insns.len());
            let outside = |to| goal(self.program, &self.reached, to);
            let ways = described.ways.verdict(rest, outside);
            // What another function shares must be the same for both.
            let is_other = |insn: &&Insn| {
                let row = known.get(&insn.range.start);
                insn.is_reached() && row.is_some_and(|row| *row != insn.row)
            };
            let other = insns.iter().find(is_other);
            let against = ways.against.or(other.map(|insn| insn.range.start));
            let refused = match against {
                _ if tries == 0 => Some(Missing::NoWayOut),
                _ if is_first_stub => None,
                Some(at) => Some(Missing::NotBorneOut(Vaddr(at))),
                None if ways.for_it == 0 => Some(Missing::NoWayOut),
                None => None,
            };
            let starts = || rest.unit(unit).map(|extent| extent.start);
            if refused.is_some() {
                self.report(within(&spans(&insns, starts()), &extent), refused);
                continue;
            }
            insns.retain(|insn| insn.is_reached() && !known.contains_key(&insn.range.start));
            let spans = spans(&insns, starts());
            for extent in rest.unit(unit) {
                self.enter(within(&spans, &extent), &tools.rows)?;
            }
            self.report(&spans, None);
            self.depths.extend(described.depths);
            self.end = insns.last().map_or(0, |last| last.range.end);
            known.extend(insns.into_iter().map(|insn| (insn.range.start, insn.row)));
        }
        Ok(())
    }

    /// Finds where exceptions land, of areas of which it is not known whose they are.
    fn landings(
        &self,
        tools: &mut Tools<'_>,
        areas: &HashSet<Area>,
        descriptions: &Descriptions,
    ) -> Landings {
        if areas.is_empty() {
            return Landings::default();
        }
        let mut depths = self.depths.clone();
        for description in descriptions.values() {
            depths.extend_from_slice(&description.depths);
        }
        depths.sort_unstable();
        depths.dedup();
        let extents = self.program.extents().iter();
        let functions = extents.filter(|extent| extent.part == Part::Function);
        let functions = functions.map(|extent| extent.start);
        let entries = self.program.entries_in(0..u64::MAX).iter().copied();
        let assumed = self
            .functions
            .iter()
            .filter(|function| function.described > 0);
        let assumed = assumed.map(|function| function.start.0);
        let mut starts: Vec<u64> = functions.chain(entries).chain(assumed).collect();
        starts.sort_unstable();
        starts.dedup();
        let mut reached = self.reached.clone();
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
        let known = pads::Known {
            file: self.known.file,
            facts: self.facts,
            ranges: self.known.gaps,
            program: self.program,
            seen: self.known.seen,
            starts: &starts,
            reached: &merged,
            depths: &depths,
        };
        pads::landings(&known, &mut tools.scanner, areas)
    }

    /// Whether code ends at an address that something is known to lead to.
    fn is_end(&self, address: u64) -> bool {
        let place = self
            .reached
            .binary_search_by_key(&address, |range| range.end);
        place.is_ok()
    }

    /// Makes entries of the rows of instructions that follow each other.
    fn enter(&mut self, spans: &[Span], rows: &Rows) -> Result<(), TableError> {
        let file = self.known.file;
        let start = spans.first().map_or(0, |first| first.range.start);
        if Text(file)
            .bytes_from(start)
            .is_some_and(|code| code.starts_with(self.facts.signal_return))
        {
            return Ok(());
        }
        let is_entry_code = self.known.entry == Some(start);
        let mut last = None;
        let mut end = None;
        for span in spans {
            if end.replace(span.range.end) != Some(span.range.start) {
                last = None;
            }
            let Ok(row) = span.row else {
                // Padding within a function does not part it.
                last = last.filter(|_| span.is_left_out);
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

    /// The row of the table that a number stands for; at the entry of the program, which nothing calls, it has no
    /// return address.
    fn row_id(&mut self, row: u32, rows: &Rows, is_entry: bool) -> Result<RowId, TableError> {
        if let Some(id) = self.row_ids.get(&row).filter(|_| !is_entry) {
            return Ok(*id);
        }
        let mut rules = rows.get(row).unwrap_or_else(|| Rules::at_entry(self.facts));
        if is_entry {
            rules.return_address = Saved::Lost;
            return rules.intern(&mut self.table, self.facts);
        }
        let id = rules.intern(&mut self.table, self.facts)?;
        self.row_ids.insert(row, id);
        Ok(id)
    }

    fn report(&mut self, spans: &[Span], refused: Option<Missing>) {
        let missing = |span: &Span| refused.or(span.row.err().map(Missing::Row));
        let mut code = spans.iter().filter(|span| !span.is_left_out);
        let ends = code.clone().next().zip(code.clone().next_back());
        let Some((first, last)) = ends else { return };
        let start = first.range.start;
        let names = self.known.names;
        let described = code.clone().filter(|span| missing(span).is_none());
        self.functions.push(Recovered {
            name: names
                .get(&start)
                .map_or_else(String::new, |function| function.name.clone()),
            start: Vaddr(start),
            end: Vaddr(last.range.end),
            instructions: code.clone().map(|span| span.len).sum(),
            described: described.map(|span| span.len).sum(),
            missing: code.find_map(|span| Some((Vaddr(span.range.start), missing(span)?))),
        });
    }

    fn finish(mut self) -> Result<Synthesis, SynthesisError> {
        let start = |rows: &[RowStart]| rows.first().map_or(Vaddr(0), |row| row.start);
        self.entries.sort_unstable_by_key(|(_, rows)| start(rows));
        // Instructions that overlap are not both meant.
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
