//! Partitions code into functions and units.
//!
//! A jump between two runs either stays in the function or is a tail call; the state decides. The
//! stack and all registers that calls preserve may be as at entry. Then the target is entered as by
//! a call, whether it is a function or not. Otherwise both runs are one function.

use core::ops::Range;
use std::collections::{BTreeSet, HashMap, HashSet};

use unspool_code_analysis::op::Flow;
use unspool_code_analysis::{Analyzer, CodeExtent, ExtentKind, ExtentScan, Lifter, ProgramCode};
use unspool_elf::ElfFile;

use crate::elf_code_image::ElfCodeImage;
use crate::extents::{ExtentStarts, fall_through_runs, split};
use crate::landing_pads::LandingPads;
use crate::unit_rows::{RowInterner, UnitRows, UnitSummary};

/// Greatest number of rounds that look for jumps between units. Real programs take ten.
const MAX_ROUNDS: usize = 200;

/// Summaries of units, by the starts of their first extents.
pub(crate) type UnitSummaries = HashMap<u64, UnitSummary>;

/// The runs of some ranges of code as a program with units; `None` if there is no fixpoint in
/// reasonable time.
///
/// `starts` are certain starts. An extent that is whole is not split further. `lost` are functions
/// that are known by name never to return; functions found not to return are added.
pub(crate) fn partition(
    analyzer: &mut UnitAnalyzer<'_>,
    ranges: &[Range<u64>],
    starts: &ExtentStarts,
    is_whole: impl Fn(&CodeExtent) -> bool,
    lost: &mut HashSet<u64>,
) -> Option<(ProgramCode, UnitSummaries)> {
    let known = split(ranges, starts);
    // Behind a call that never returns there is another run; with that knowledge, further functions
    // never return.
    let mut rounds = 0;
    let mut pieces: Vec<Vec<(CodeExtent, ExtentScan)>> = vec![Vec::new(); known.len()];
    let mut changed: Vec<usize> = (0..known.len()).collect();
    let mut program = loop {
        for place in changed {
            if let Some((extent, pieces)) = known.get(place).zip(pieces.get_mut(place)) {
                *pieces = if is_whole(extent) {
                    vec![analyzer.survey(*extent)]
                } else {
                    analyzer.scan_runs(extent, starts, lost)
                };
            }
        }
        let never =
            ProgramCode::noreturn_functions(pieces.iter().flatten(), |to| lost.contains(&to));
        let never = never.into_iter();
        let news: Vec<u64> = never.filter(|start| lost.insert(*start)).collect();
        rounds += 1;
        // Further functions without return would only have added precision.
        if news.is_empty() || rounds == MAX_ROUNDS {
            break ProgramCode::with_separate_units(pieces.iter().flatten(), |to| {
                lost.contains(&to)
            });
        }
        // Their callers end there.
        let is_new = |address: &u64| news.binary_search(address).is_ok();
        let calls = |(extent, survey): &(CodeExtent, ExtentScan)| {
            is_new(&extent.start) || survey.calls().iter().any(is_new)
        };
        let pieces = pieces.iter().enumerate();
        let calling = pieces.filter(|(_, pieces)| pieces.iter().any(calls));
        changed = calling.map(|(place, _)| place).collect();
    };
    drop(pieces);
    // Jump table targets are in the same function, which may extend to the next certain start.
    let number = |extent: &CodeExtent| known.partition_point(|known| known.start <= extent.start);
    let pieces = program.extents().windows(2).zip(0..);
    let near = pieces.filter(|(pair, _)| matches!(pair, [a, b] if number(a) == number(b)));
    let joins: Vec<(usize, usize)> = near.map(|(_, place)| (place, place + 1)).collect();
    program.unite(joins);
    let units = (0..program.unit_count()).collect();
    let mut descriptions = UnitSummaries::new();
    let is_settled = analyzer.analyze_to_fixpoint(&mut program, units, &mut descriptions);
    is_settled.then_some((program, descriptions))
}

/// Analyzes units, with the knowledge that this needs.
pub(crate) struct UnitAnalyzer<'t> {
    pub(crate) file: &'t ElfFile,
    pub(crate) lifter: Lifter,
    pub(crate) analyzer: Analyzer,
    pub(crate) rows: RowInterner,
    pub(crate) landings: LandingPads,
}

impl UnitAnalyzer<'_> {
    fn survey(&mut self, extent: CodeExtent) -> (CodeExtent, ExtentScan) {
        let survey = ExtentScan::new(&mut self.lifter, &ElfCodeImage(self.file), &extent);
        (extent, survey)
    }

    /// The fall-through runs of an extent.
    fn scan_runs(
        &mut self,
        extent: &CodeExtent,
        starts: &ExtentStarts,
        lost: &HashSet<u64>,
    ) -> Vec<(CodeExtent, ExtentScan)> {
        let range = extent.start..extent.end;
        let never_returns = |to| lost.contains(&to);
        let runs = fall_through_runs(self.file, range, &mut self.lifter, never_returns).into_iter();
        let part = |start| starts.get(&start).copied().unwrap_or(ExtentKind::Fragment);
        let pieces = runs.map(|run| CodeExtent {
            kind: part(run.start),
            ..run
        });
        pieces.map(|piece| self.survey(piece)).collect()
    }

    /// Analyzes units and unites them with the units that they jump into, until no jump is new.
    /// Returns whether there is a fixpoint.
    pub(crate) fn analyze_to_fixpoint(
        &mut self,
        program: &mut ProgramCode,
        mut units: BTreeSet<usize>,
        summaries: &mut UnitSummaries,
    ) -> bool {
        for _ in 0..MAX_ROUNDS {
            if units.is_empty() {
                return true;
            }
            let mut found = InterUnitEdges::default();
            for unit in units {
                let description = found.gather(self, program, unit);
                if let Some(first) = program.unit(unit).next() {
                    summaries.insert(first.start, description);
                }
            }
            let mut changed = found.tail_call_targets;
            changed.retain(|to| program.add_entry(*to));
            let joins = found.intra_function_jumps.iter();
            let joins = joins.filter_map(|(from, to)| {
                Some((
                    program.index_containing(*from)?,
                    program.index_containing(*to)?,
                ))
            });
            let joins: Vec<(usize, usize)> = joins.collect();
            if !joins.is_empty() {
                program.unite(joins);
                changed.extend(found.intra_function_jumps.iter().map(|(_, to)| *to));
            }
            let changed = changed.into_iter();
            units = changed
                .filter_map(|address| program.unit_of(address))
                .collect();
        }
        false
    }
}

/// Jumps between units.
#[derive(Default)]
struct InterUnitEdges {
    /// Targets entered as by a call.
    tail_call_targets: BTreeSet<u64>,
    /// All other jumps.
    intra_function_jumps: BTreeSet<(u64, u64)>,
}

impl InterUnitEdges {
    fn gather(
        &mut self,
        unit_analyzer: &mut UnitAnalyzer<'_>,
        program: &ProgramCode,
        unit: usize,
    ) -> UnitSummary {
        let UnitAnalyzer {
            file,
            analyzer,
            rows,
            landings,
            ..
        } = unit_analyzer;
        let analysis = analyzer.analyze(
            program,
            &ElfCodeImage(file),
            unit,
            landings.as_slice(),
            landings,
        );
        let code = analysis.code();
        let described = UnitRows::from_analysis(&analysis, program, rows, |id, state| {
            let Some(to) = code.flow(id).and_then(Flow::jump_target) else {
                return;
            };
            let there = program.unit_of(to);
            if there.is_none() || there == Some(unit) || program.starts_function(to) {
                return;
            }
            if analysis.is_as_at_entry(state) {
                self.tail_call_targets.insert(to);
            } else {
                self.intra_function_jumps.insert((code.range(id).start, to));
            }
        });
        UnitSummary::from_rows(described, program.unit(unit))
    }
}
