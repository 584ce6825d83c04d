//! Which pieces of code belong together, and where functions begin.
//!
//! A jump from one piece to another goes on in the same function, or calls another in its place. The state tells: if the
//! stack is as it was at entry, and so are all registers that calls preserve, then the other piece is come into as after
//! a call, be it a function or not. Otherwise both are one.

use core::ops::Range;
use std::collections::{BTreeSet, HashMap, HashSet};

use unspool_module::ElfFile;
use unspool_synth::op::Flow;
use unspool_synth::{Analyzer, Extent, Machine, Part, Program, Survey};

use crate::cuts::{Starts, cut, runs};
use crate::described::{Described, Description, Rows};
use crate::pads::Landings;
use crate::text::Text;

/// So many times code is looked at for jumps from unit to unit. Real programs take ten.
const MOST_ROUNDS: usize = 200;

/// What was found of units, by the starts of their first extents.
pub(crate) type Descriptions = HashMap<u64, Description>;

/// The pieces of some ranges of code as a program whose units belong together; `None` if that comes to no end in
/// reasonable time.
///
/// `starts` says where something certainly begins; what is whole is not cut further. `lost` are addresses of functions
/// that are known never to return, by their names; those that are found are added.
pub(crate) fn partition(
    tools: &mut Tools<'_>,
    ranges: &[Range<u64>],
    starts: &Starts,
    is_whole: impl Fn(&Extent) -> bool,
    lost: &mut HashSet<u64>,
) -> Option<(Program, Descriptions)> {
    let known = cut(ranges, starts);
    // What comes behind a call that never returns is another piece, and if that is known, others never return.
    let mut rounds = 0;
    let mut pieces: Vec<Vec<(Extent, Survey)>> = vec![Vec::new(); known.len()];
    let mut changed: Vec<usize> = (0..known.len()).collect();
    let mut program = loop {
        for place in changed {
            if let Some((extent, pieces)) = known.get(place).zip(pieces.get_mut(place)) {
                *pieces = match is_whole(extent) {
                    true => vec![tools.survey(*extent)],
                    false => tools.pieces(extent, starts, lost),
                };
            }
        }
        let never = Program::never_returning(pieces.iter().flatten(), |to| lost.contains(&to));
        let never = never.into_iter();
        let news: Vec<u64> = never.filter(|start| lost.insert(*start)).collect();
        rounds += 1;
        // That more never return would only have told more.
        if news.is_empty() || rounds == MOST_ROUNDS {
            break Program::apart(pieces.iter().flatten(), |to| lost.contains(&to));
        }
        // What calls them ends there.
        let is_new = |address: &u64| news.binary_search(address).is_ok();
        let calls = |(extent, survey): &(Extent, Survey)| {
            is_new(&extent.start) || survey.calls().iter().any(is_new)
        };
        let pieces = pieces.iter().enumerate();
        let calling = pieces.filter(|(_, pieces)| pieces.iter().any(calls));
        changed = calling.map(|(place, _)| place).collect();
    };
    drop(pieces);
    // A jump table's targets are in the same function, which may reach to where the next one certainly begins.
    let number = |extent: &Extent| known.partition_point(|known| known.start <= extent.start);
    let pieces = program.extents().windows(2).zip(0..);
    let near = pieces.filter(|(pair, _)| matches!(pair, [a, b] if number(a) == number(b)));
    let joins: Vec<(usize, usize)> = near.map(|(_, place)| (place, place + 1)).collect();
    program.unite(joins);
    let units = (0..program.units()).collect();
    let mut descriptions = Descriptions::new();
    let is_settled = tools.settle(&mut program, units, &mut descriptions);
    is_settled.then_some((program, descriptions))
}

/// What looks at units, and what it knows.
pub(crate) struct Tools<'t> {
    pub(crate) file: &'t ElfFile,
    pub(crate) scanner: Machine,
    pub(crate) analyzer: Analyzer,
    pub(crate) rows: Rows,
    pub(crate) landings: Landings,
}

impl Tools<'_> {
    fn survey(&mut self, extent: Extent) -> (Extent, Survey) {
        let survey = Survey::of(&mut self.scanner, &Text(self.file), &extent);
        (extent, survey)
    }

    /// The pieces of an extent.
    fn pieces(
        &mut self,
        extent: &Extent,
        starts: &Starts,
        lost: &HashSet<u64>,
    ) -> Vec<(Extent, Survey)> {
        let range = extent.start..extent.end;
        let never_returns = |to| lost.contains(&to);
        let runs = runs(self.file, range, &mut self.scanner, never_returns).into_iter();
        let part = |start| starts.get(&start).copied().unwrap_or(Part::Fragment);
        let pieces = runs.map(|run| Extent {
            part: part(run.start),
            ..run
        });
        pieces.map(|piece| self.survey(piece)).collect()
    }

    /// Looks at units, and joins them with what they jump into, until nothing is new; whether that comes to an end.
    pub(crate) fn settle(
        &mut self,
        program: &mut Program,
        mut units: BTreeSet<usize>,
        descriptions: &mut Descriptions,
    ) -> bool {
        for _ in 0..MOST_ROUNDS {
            if units.is_empty() {
                return true;
            }
            let mut found = Edges::default();
            for unit in units {
                let description = found.gather(self, program, unit);
                if let Some(first) = program.unit(unit).next() {
                    descriptions.insert(first.start, description);
                }
            }
            let mut changed = found.entered;
            changed.retain(|to| program.enter(*to));
            let joins = found.joined.iter();
            let joins = joins.filter_map(|(from, to)| {
                Some((program.containing(*from)?, program.containing(*to)?))
            });
            let joins: Vec<(usize, usize)> = joins.collect();
            if !joins.is_empty() {
                program.unite(joins);
                changed.extend(found.joined.iter().map(|(_, to)| *to));
            }
            let changed = changed.into_iter();
            units = changed
                .filter_map(|address| program.unit_of(address))
                .collect();
        }
        false
    }
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
    fn gather(&mut self, tools: &mut Tools<'_>, program: &Program, unit: usize) -> Description {
        let Tools {
            file,
            analyzer,
            rows,
            landings,
            ..
        } = tools;
        let analysis = analyzer.analyze(program, &Text(file), unit, landings.as_slice(), landings);
        let code = analysis.code();
        let described = Described::of(&analysis, program, rows, |id, state| {
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
        Description::of(described, program.unit(unit))
    }
}
