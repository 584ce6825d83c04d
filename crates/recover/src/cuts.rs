//! Code cut into extents.

use core::ops::Range;
use std::collections::BTreeMap;

use unspool_module::ElfFile;
use unspool_synth::op::Flow;
use unspool_synth::{Code, Extent, Image as _, Machine, Part};

use crate::functions::{Function, Sightings};
use crate::text::Text;

/// What of some ranges is not in others; both ascend.
pub(crate) fn without(ranges: &[Range<u64>], others: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut left = Vec::new();
    for range in ranges {
        let mut at = range.start;
        let first = others.partition_point(|other| other.end <= range.start);
        let inside = others.get(first..).unwrap_or_default().iter();
        for other in inside.take_while(|other| other.start < range.end) {
            if at < other.start {
                left.push(at..other.start);
            }
            at = at.max(other.end);
        }
        if at < range.end {
            left.push(at..range.end);
        }
    }
    left
}

/// Where code begins that belongs together, and how that is come into.
pub(crate) fn starts(file: &ElfFile, seen: &Sightings, known: &[Function]) -> BTreeMap<u64, Part> {
    let ends = known.iter().filter(|function| function.has_size);
    let ends = ends.map(|function| (function.extent.end, Part::Fragment));
    let called = seen.calls.iter().copied().chain([file.entry().0]);
    let called = called.map(|to| (to, Part::Function));
    let named = known.iter().map(|function| function.extent);
    let named = named.map(|extent| (extent.start, extent.part));
    // Of what is said of one address, the last counts.
    ends.chain(called).chain(named).collect()
}

/// Ranges of code, cut where something begins.
pub(crate) fn extents(ranges: &[Range<u64>], starts: &BTreeMap<u64, Part>) -> Vec<Extent> {
    let mut extents = Vec::new();
    for range in ranges {
        let mut last = Extent {
            start: range.start,
            end: range.end,
            part: Part::Fragment,
        };
        for (start, part) in starts.range(range.clone()) {
            if last.start < *start {
                extents.push(Extent {
                    end: *start,
                    ..last
                });
            }
            (last.start, last.part) = (*start, *part);
        }
        extents.push(last);
    }
    extents
}

/// Ranges of code, cut where control does not go on: what comes behind may be a function. Padding between is left out.
pub(crate) fn runs(file: &ElfFile, ranges: &[Range<u64>], machine: &mut Machine) -> Vec<Extent> {
    let text = Text(file);
    let mut runs = Vec::new();
    let mut code = Code::default();
    for range in ranges {
        code.clear();
        let bytes = text.bytes(range.clone()).unwrap_or_default();
        machine.lift(bytes, range.start, &mut code);
        let mut run: Option<Extent> = None;
        for id in code.ids() {
            if run.is_none() && code.is_padding(id) {
                continue;
            }
            let Range { start, end } = code.range(id);
            let part = Part::Fragment;
            let run_so_far = run.get_or_insert(Extent { start, end, part });
            run_so_far.end = end;
            if ends_way(code.flow(id)) {
                runs.extend(run.take());
            }
        }
        runs.extend(run);
    }
    runs
}

/// Whether control does not go on to the next instruction.
fn ends_way(flow: Option<Flow>) -> bool {
    matches!(
        flow,
        Some(Flow::Jump(_) | Flow::IndirectJump(_) | Flow::Return { .. } | Flow::Trap)
    )
}
