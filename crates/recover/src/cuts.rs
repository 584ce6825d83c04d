//! Code cut into extents.

use core::ops::Range;
use std::collections::{BTreeMap, HashSet};

use unspool_module::ElfFile;
use unspool_synth::op::{Flow, Op};
use unspool_synth::{Code, Extent, Image as _, InsnId, Machine, Part};

use crate::functions::{Function, Sightings};
use crate::stubs::stubs;
use crate::text::Text;

/// Where code begins that belongs together, and how that is come into.
pub(crate) type Starts = BTreeMap<u64, Part>;

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

/// Where something certainly begins.
pub(crate) fn starts(
    file: &ElfFile,
    entry: Option<u64>,
    seen: &Sightings,
    known: &[Function],
) -> Starts {
    let ends = known.iter().filter(|function| function.has_size);
    let ends = ends.map(|function| (function.extent.end, Part::Fragment));
    let called = seen.calls.iter().copied().chain(entry);
    let called = called.chain(stubs(file));
    let called = called.map(|to| (to, Part::Function));
    let named = known.iter().map(|function| function.extent);
    let named = named.map(|extent| (extent.start, extent.part));
    // Of what is said of one address, the last counts.
    ends.chain(named).chain(called).collect()
}

/// Ranges of code, cut where something begins.
pub(crate) fn cut(ranges: &[Range<u64>], starts: &Starts) -> Vec<Extent> {
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

/// Where compilers have functions begin that are not small on purpose.
pub(crate) const FUNCTION_ALIGNMENT: u64 = 16;

/// A range of code, cut where control does not go on: what comes behind may be a function. Padding between is left
/// out. It does not go on behind a call, either, that is padded as functions are, unless a loop begins there, or what is
/// there takes something off the stack, which no function begins with (GCC has a `nop` behind calls before the end of
/// functions that it does not optimise): most calls that are the last instruction of a function never return.
pub(crate) fn runs(
    file: &ElfFile,
    range: Range<u64>,
    machine: &mut Machine,
    never_returns: impl Fn(u64) -> bool,
) -> Vec<Extent> {
    let text = Text(file);
    let bytes = text.bytes(range.clone()).unwrap_or_default();
    let inside = inside(machine, bytes, range.start);
    let mut runs = Vec::new();
    let mut run: Option<Extent> = None;
    // Where the last instruction ended that was no padding, if it was a call.
    let mut called = None;
    machine.outline(bytes, range.start, |insn, flow, is_padding| {
        let Range { start, end } = insn;
        if is_padding && (run.is_none() || flow.is_none()) {
            if let Some(run) = &mut run {
                run.end = end;
            }
            return;
        }
        let may_begin = start % FUNCTION_ALIGNMENT == 0 && !inside.contains(&start);
        if let Some(end) = called.take_if(|end| may_begin && *end < start) {
            runs.extend(run.take().map(|run| Extent { end, ..run }));
        }
        let part = Part::Fragment;
        run.get_or_insert(Extent { start, end, part }).end = end;
        let is_call = matches!(flow, Some(Flow::Call(_) | Flow::IndirectCall));
        called = is_call.then_some(end);
        let goes_on = match flow {
            Some(Flow::Jump(_) | Flow::IndirectJump(_) | Flow::Return { .. } | Flow::Trap) => false,
            Some(Flow::Call(to)) => !never_returns(to),
            _ => true,
        };
        if !goes_on {
            runs.extend(run.take());
        }
    });
    runs.extend(run);
    runs
}

/// Where no function begins, though functions are aligned so: where loops begin, and what takes something off the stack
/// behind a padded call.
fn inside(machine: &mut Machine, bytes: &[u8], address: u64) -> HashSet<u64> {
    let (mut inside, mut behind) = (HashSet::new(), Vec::new());
    let mut called = None;
    machine.outline(bytes, address, |insn, flow, is_padding| {
        match flow {
            Some(Flow::Branch { to, .. } | Flow::Jump(to)) if to <= insn.start => {
                inside.insert(to);
            }
            None if is_padding => return,
            _ => {}
        }
        if called.is_some_and(|end| end < insn.start) && insn.start % FUNCTION_ALIGNMENT == 0 {
            behind.push(insn.start);
        }
        let is_call = matches!(flow, Some(Flow::Call(_) | Flow::IndirectCall));
        called = is_call.then_some(insn.end);
    });
    let sp = machine.facts().stack_pointer;
    let takes = |op: &Op| matches!(op, Op::Add { to, bytes, .. } if *to == sp && *bytes > 0);
    let mut code = Code::default();
    inside.extend(behind.into_iter().filter(|start| {
        let at = usize::try_from(start - address).unwrap_or(usize::MAX);
        let rest = bytes.get(at..).unwrap_or_default();
        code.clear();
        machine.lift(rest.get(..LONGEST).unwrap_or(rest), *start, &mut code);
        code.ops_of(InsnId(0)).iter().any(takes)
    }));
    inside
}

/// The bytes of the longest instruction, of any machine.
const LONGEST: usize = 16;
