//! Which pieces of code belong together, and where functions begin.
//!
//! A jump from one piece to another goes on in the same function, or calls another in its place. The state tells: if the
//! stack is as it was at entry, and so are all registers that calls preserve, then the other piece is come into as after
//! a call, be it a function or not. Otherwise both are one.

use core::ops::Range;
use std::collections::{BTreeSet, HashSet};

use unspool_module::ElfFile;
use unspool_synth::op::Flow;
use unspool_synth::{Analyzer, CodeAlone, Extent, Machine, Part, Program, Returns};

use crate::cuts::{Starts, cut, runs};
use crate::text::Text;

/// So many times code is looked at for jumps from unit to unit. Real programs take ten.
const MOST_ROUNDS: usize = 200;

/// The pieces of some ranges of code as a program whose units belong together; `None` if that comes to no end in
/// reasonable time.
///
/// `starts` says where something certainly begins; what is whole is not cut further. `lost` are addresses of functions
/// that are known never to return, by their names; those that are found are added.
pub(crate) fn partition(
    file: &ElfFile,
    (machine, analyzer): (&mut Machine, &mut Analyzer),
    ranges: &[Range<u64>],
    starts: &Starts,
    is_whole: impl Fn(&Extent) -> bool,
    lost: &mut HashSet<u64>,
) -> Option<Program> {
    let known = cut(ranges, starts);
    // What comes behind a call that never returns is another piece, and if that is known, others never return.
    let mut rounds = 0;
    let mut program = loop {
        let mut pieces = Vec::with_capacity(known.len());
        for extent in &known {
            if is_whole(extent) {
                pieces.push(*extent);
                continue;
            }
            let runs = runs(file, extent.start..extent.end, machine, |to| {
                lost.contains(&to)
            });
            pieces.extend(runs.into_iter().map(|run| Extent {
                part: starts.get(&run.start).copied().unwrap_or(Part::Fragment),
                ..run
            }));
        }
        let found = Program::apart(machine, &Text(file), pieces, |to| lost.contains(&to));
        let before = lost.len();
        let starts = found.extents().iter().map(|extent| extent.start);
        lost.extend(starts.filter(|start| found.returns(*start) == Some(Returns::Never)));
        rounds += 1;
        // That more never return would only have told more.
        if lost.len() == before || rounds == MOST_ROUNDS {
            break found;
        }
    };
    // A jump table's targets are in the same function, which may reach to where the next one certainly begins.
    let number = |extent: &Extent| known.partition_point(|known| known.start <= extent.start);
    let pieces = program.extents().windows(2).zip(0..);
    let near = pieces.filter(|(pair, _)| matches!(pair, [a, b] if number(a) == number(b)));
    let mut joins: Vec<(usize, usize)> = near.map(|(_, place)| (place, place + 1)).collect();
    program.unite(joins.iter().copied());
    let mut units: BTreeSet<usize> = (0..program.units()).collect();
    for _ in 0..MOST_ROUNDS {
        if units.is_empty() {
            return Some(program);
        }
        let mut found = Edges::default();
        for unit in units {
            found.gather(file, analyzer, &program, unit);
        }
        let mut changed = Vec::new();
        for to in found.entered {
            if program.enter(to) {
                changed.push(to);
            }
        }
        if !found.joined.is_empty() {
            for (from, to) in &found.joined {
                joins.extend(program.containing(*from).zip(program.containing(*to)));
                changed.push(*to);
            }
            program.unite(joins.iter().copied());
        }
        units = changed
            .into_iter()
            .filter_map(|address| program.unit_of(address))
            .collect();
    }
    None
}

/// Jumps from unit to unit.
#[derive(Default)]
struct Edges {
    /// Where those lead that come as after a call.
    entered: BTreeSet<u64>,
    /// The others.
    joined: BTreeSet<(u64, u64)>,
}

impl Edges {
    fn gather(&mut self, file: &ElfFile, analyzer: &mut Analyzer, program: &Program, unit: usize) {
        let analysis = analyzer.analyze(program, &Text(file), unit, &[], &CodeAlone);
        let code = analysis.code();
        analysis.visit(|id, state| {
            let Some(Flow::Jump(to) | Flow::Branch { to, .. }) = code.flow(id) else {
                return;
            };
            let there = program.unit_of(to);
            if there.is_none() || there == Some(unit) || program.starts_function(to) {
                return;
            }
            if analysis.is_as_called(state) {
                self.entered.insert(to);
            } else {
                self.joined.insert((code.range(id).start, to));
            }
        });
    }
}
