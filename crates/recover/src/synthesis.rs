//! Unwind tables for code that no table covers.
//!
//! Functions are found by symbols, by calls, and by where the program begins. What the analysis then proves before each
//! instruction is its row. Where no symbol says how far a function reaches, it is no more than an assumption that it is
//! one; and of code that nothing is known to lead to it is assumed that it begins as a function does. Such assumptions
//! must be borne out by the ways out ([`crate::ways_out`]), or there are no rows.

use core::ops::Range;
use std::collections::HashMap;

use unspool_ir::table::{FdeHeader, RowStart, TableError};
use unspool_ir::{Arch, Table, Vaddr};
use unspool_module::ElfFile;
use unspool_synth::rows::Saved;
use unspool_synth::{
    Analysis, Analyzer, CodeAlone, Extent, Guide, Image as _, Machine, NoRow, Part, Program, Rules,
    State,
};

use crate::cuts::{FUNCTION_ALIGNMENT, runs, starts, without};
use crate::functions::{Function, Sightings, code_ranges, named};
use crate::noreturn::never_returning;
use crate::partition::partition;
use crate::text::Text;
use crate::ways_out::{Goal, WaysOut};

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
    #[error(
        "no symbol says that this is a function, and the way out at {0} is not one of a function"
    )]
    NotBorneOut(Vaddr),
    /// Nothing leads there, and no way out bears out that it begins as a function does.
    #[error("nothing is known to lead here, and nothing here returns")]
    NoWayOut,
}

/// Why there is no table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SynthesisError {
    /// The machine's instructions are not known.
    #[error("the instructions of {} are not known; x86-64's are", .0.spec().name)]
    Arch(Arch),
    /// Jumps lead from function to function without end.
    #[error(
        "the code jumps from function to function too often to be followed; no compiler's does"
    )]
    Tangled,
    /// There is too much of it.
    #[error(transparent)]
    Table(#[from] TableError),
}

/// Makes rows for the code of a file that is not in `covered`, ranges that ascend.
///
/// # Errors
///
/// The machine is not known, or the table is too large.
pub fn synthesize(file: &ElfFile, covered: &[Range<u64>]) -> Result<Synthesis, SynthesisError> {
    let machine = || Machine::of(file.abi()).ok_or(SynthesisError::Arch(file.abi().arch));
    let (mut scanner, mut analyzer) = (machine()?, Analyzer::new(machine()?));
    let gaps = without(&code_ranges(file), covered);
    let seen = Sightings::of(file, &gaps, &mut scanner);
    let known = named(file, &gaps, &seen);
    let names: HashMap<u64, &Function> = known
        .iter()
        .map(|function| (function.extent.start, function))
        .collect();
    let is_sized = |extent: &Extent| {
        let function = names.get(&extent.start);
        function.is_some_and(|function| function.has_size)
    };
    let mut lost = never_returning(file);
    let starts = starts(file, &seen, &known);
    let tools = (&mut scanner, &mut analyzer);
    let program = partition(file, tools, &gaps, &starts, is_sized, &mut lost);
    let program = program.ok_or(SynthesisError::Tangled)?;
    let mut work = Work {
        file,
        analyzer,
        names: &names,
        seen: &seen,
        program: &program,
        table: Table::new(file.abi()),
        entries: Vec::new(),
        reached: Vec::new(),
        functions: Vec::new(),
    };
    for unit in 0..program.units() {
        let is_certain = |extent: Extent| {
            let entries = program.entries_in(extent.start..extent.end);
            is_sized(&extent) || extent.part == Part::Fragment && entries.is_empty()
        };
        let is_certain = program.unit(unit).all(is_certain);
        work.describe(unit, is_certain)?;
    }
    work.reached.sort_unstable_by_key(|range| range.start);
    let rest = without(&gaps, &work.reached);
    let never_returns = |address| lost.contains(&address);
    let rest = rest.into_iter();
    let rest = rest.flat_map(|range| runs(file, range, &mut scanner, never_returns));
    let rest: Vec<Extent> = rest.collect();
    let rest = Program::survey(&mut scanner, &Text(file), rest, Vec::new(), never_returns);
    for unit in 0..rest.units() {
        work.describe_assumed(&rest, unit)?;
    }
    work.finish()
}

/// Assumes of one place that nothing leads to that it is come into as after a call: this is the state then.
struct AsCalled {
    at: u64,
    state: State,
}

impl Guide for AsCalled {
    fn entry(&self, address: u64) -> Option<State> {
        (address == self.at).then(|| self.state.clone())
    }
}

/// An instruction with its row.
struct Insn {
    range: Range<u64>,
    row: Result<Rules, NoRow>,
    is_padding: bool,
}

impl Insn {
    fn is_reached(&self) -> bool {
        self.row != Err(NoRow::Unreached)
    }
}

fn insns(analysis: &Analysis<'_>) -> Vec<Insn> {
    let ids = analysis.code().ids();
    let rows = analysis.rules().into_iter();
    ids.zip(rows)
        .map(|(id, (range, row))| Insn {
            range,
            row,
            is_padding: analysis.code().is_padding(id),
        })
        .collect()
}

/// The instructions of an extent, of those of its unit.
fn within<'i>(insns: &'i [Insn], extent: &Extent) -> &'i [Insn] {
    let place = |address| insns.partition_point(|insn| insn.range.start < address);
    let own = insns.get(place(extent.start)..place(extent.end));
    own.unwrap_or_default()
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

/// The work on one file.
struct Work<'w> {
    file: &'w ElfFile,
    analyzer: Analyzer,
    /// Functions that symbols name, by their starts.
    names: &'w HashMap<u64, &'w Function>,
    seen: &'w Sightings,
    /// The code that something is known to lead to, and what else is in the same ranges.
    program: &'w Program,
    table: Table,
    /// The entries of the table to be: where they end, and their rows.
    entries: Vec<(u64, Vec<RowStart>)>,
    /// Code that something is known to lead to; ascends once all that is known was looked at.
    reached: Vec<Range<u64>>,
    functions: Vec<Recovered>,
}

impl Work<'_> {
    /// Describes a unit that something is known to lead to. If it is not certain that it is come into as after a call,
    /// that must be borne out.
    fn describe(&mut self, unit: usize, is_certain: bool) -> Result<(), TableError> {
        let (program, text) = (self.program, Text(self.file));
        let analysis = self.analyzer.analyze(program, &text, unit, &[], &CodeAlone);
        let ways = WaysOut::of(&analysis, program, |_| Goal::Unknown);
        let insns = insns(&analysis);
        for insn in insns.iter().filter(|insn| insn.is_reached()) {
            match self.reached.last_mut() {
                Some(last) if last.end == insn.range.start => last.end = insn.range.end,
                _ => self.reached.push(insn.range.clone()),
            }
        }
        let against = ways.against.filter(|_| !is_certain);
        let refused = against.map(|at| Missing::NotBorneOut(Vaddr(at)));
        for extent in program.unit(unit) {
            let own = within(&insns, &extent);
            if refused.is_none() {
                self.enter(own)?;
            }
            if extent.part == Part::Function || self.names.contains_key(&extent.start) {
                self.report(own, refused);
            }
        }
        Ok(())
    }

    /// Describes what of a unit, that nothing is known to lead to, is borne out to begin as a function does.
    fn describe_assumed(&mut self, rest: &Program, unit: usize) -> Result<(), TableError> {
        let mut tries = MOST_TRIES;
        let mut known: HashMap<u64, Result<Rules, NoRow>> = HashMap::new();
        for extent in rest.unit(unit) {
            let may_begin =
                extent.start % FUNCTION_ALIGNMENT == 0 || self.seen.is_taken(extent.start);
            if !may_begin || known.contains_key(&extent.start) {
                continue;
            }
            let guide = AsCalled {
                at: extent.start,
                state: self.analyzer.entry(),
            };
            let text = Text(self.file);
            let analysis = self.analyzer.analyze(rest, &text, unit, &[], &guide);
            tries = tries.saturating_sub(analysis.code().len());
            let ways = WaysOut::of(&analysis, rest, |to| goal(self.program, &self.reached, to));
            let mut insns = insns(&analysis);
            // What another function shares must be the same for both.
            let is_other = |insn: &&Insn| {
                let row = known.get(&insn.range.start);
                insn.is_reached() && row.is_some_and(|row| *row != insn.row)
            };
            let other = insns.iter().find(is_other);
            let against = ways.against.or(other.map(|insn| insn.range.start));
            let refused = match against {
                _ if tries == 0 => Some(Missing::NoWayOut),
                Some(at) => Some(Missing::NotBorneOut(Vaddr(at))),
                None if ways.for_it == 0 => Some(Missing::NoWayOut),
                None => None,
            };
            if refused.is_some() {
                self.report(within(&insns, &extent), refused);
                continue;
            }
            insns.retain(|insn| insn.is_reached() && !known.contains_key(&insn.range.start));
            for extent in rest.unit(unit) {
                self.enter(within(&insns, &extent))?;
            }
            self.report(&insns, None);
            known.extend(insns.into_iter().map(|insn| (insn.range.start, insn.row)));
        }
        Ok(())
    }

    /// Makes entries of the rows of instructions that follow each other.
    fn enter(&mut self, insns: &[Insn]) -> Result<(), TableError> {
        let facts = self.analyzer.facts();
        let start = insns.first().map_or(0, |first| first.range.start);
        let code = Text(self.file);
        if code
            .bytes_from(start)
            .is_some_and(|code| code.starts_with(facts.signal_return))
        {
            return Ok(());
        }
        let is_entry_code = start == self.file.entry().0;
        let mut last = None;
        let mut end = None;
        for insn in insns {
            if end.replace(insn.range.end) != Some(insn.range.start) {
                last = None;
            }
            let Ok(mut rules) = insn.row else {
                last = None;
                continue;
            };
            if is_entry_code {
                // Nothing calls it.
                rules.return_address = Saved::Lost;
            }
            if last != Some(rules) {
                let row = RowStart {
                    start: Vaddr(insn.range.start),
                    row: rules.intern(&mut self.table, facts)?,
                };
                match self.entries.last_mut().filter(|_| last.is_some()) {
                    Some((_, rows)) => rows.push(row),
                    None => self.entries.push((0, vec![row])),
                }
                last = Some(rules);
            }
            if let Some((end, _)) = self.entries.last_mut() {
                *end = insn.range.end;
            }
        }
        Ok(())
    }

    fn report(&mut self, insns: &[Insn], refused: Option<Missing>) {
        let is_left_out = |insn: &&Insn| insn.is_padding && !insn.is_reached();
        let missing = |insn: &Insn| refused.or(insn.row.err().map(Missing::Row));
        let mut code = insns.iter().filter(|insn| !is_left_out(insn));
        let ends = code.clone().next().zip(code.clone().next_back());
        let Some((first, last)) = ends else { return };
        let start = first.range.start;
        self.functions.push(Recovered {
            name: self
                .names
                .get(&start)
                .map_or_else(String::new, |function| function.name.clone()),
            start: Vaddr(start),
            end: Vaddr(last.range.end),
            instructions: code.clone().count(),
            described: code.clone().filter(|insn| missing(insn).is_none()).count(),
            missing: code.find_map(|insn| Some((Vaddr(insn.range.start), missing(insn)?))),
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
