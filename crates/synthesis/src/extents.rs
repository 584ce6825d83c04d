//! Code divided into extents.

use core::ops::Range;
use std::collections::{BTreeMap, HashSet};

use unspool_code_analysis::op::{Flow, Op};
use unspool_code_analysis::{CodeExtent, CodeImage as _, ExtentKind, InsnId, LiftedCode, Lifter};
use unspool_elf::ElfFile;

use crate::elf_code_image::ElfCodeImage;
use crate::functions::{CodeReferences, FunctionExtent};
use crate::plt::plt_stubs;

/// Starts of code that belongs together, and how control enters it.
pub(crate) type ExtentStarts = BTreeMap<u64, ExtentKind>;

/// The parts of some ranges that are not in others. Both ascend.
pub(crate) fn subtract_ranges(ranges: &[Range<u64>], others: &[Range<u64>]) -> Vec<Range<u64>> {
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

/// Addresses where something certainly begins.
pub(crate) fn certain_starts(
    file: &ElfFile,
    entry: Option<u64>,
    seen: &CodeReferences,
    known: &[FunctionExtent],
) -> ExtentStarts {
    let ends = known.iter().filter(|function| function.has_size);
    let ends = ends.map(|function| (function.extent.end, ExtentKind::Fragment));
    let called = seen.calls.iter().copied().chain(entry);
    let called = called.chain(plt_stubs(file));
    let called = called.map(|to| (to, ExtentKind::Function));
    let named = known.iter().map(|function| function.extent);
    let named = named.map(|extent| (extent.start, extent.kind));
    // The last entry for an address counts.
    ends.chain(named).chain(called).collect()
}

/// Ranges of code, split at starts.
pub(crate) fn split(ranges: &[Range<u64>], starts: &ExtentStarts) -> Vec<CodeExtent> {
    let mut extents = Vec::new();
    for range in ranges {
        let mut last = CodeExtent {
            start: range.start,
            end: range.end,
            kind: ExtentKind::Fragment,
        };
        for (start, part) in starts.range(range.clone()) {
            if last.start < *start {
                extents.push(CodeExtent {
                    end: *start,
                    ..last
                });
            }
            (last.start, last.kind) = (*start, *part);
        }
        extents.push(last);
    }
    extents
}

/// Alignment of functions that are not optimised for size.
pub(crate) const FUNCTION_ALIGNMENT_BYTES: u64 = 16;

/// A range of code, split where control does not fall through: a function may follow. Padding
/// between runs is left out.
///
/// A call followed by function padding also ends a run: most calls that end a function never
/// return. There are two exceptions: a loop begins behind the padding, or the code there pops from
/// the stack, which no function begins with. (GCC emits a `nop` after calls at the end of functions
/// that it does not optimise.)
pub(crate) fn fall_through_runs(
    file: &ElfFile,
    range: Range<u64>,
    lifter: &mut Lifter,
    never_returns: impl Fn(u64) -> bool,
) -> Vec<CodeExtent> {
    let text = ElfCodeImage(file);
    let bytes = text.bytes(range.clone()).unwrap_or_default();
    let inside = interior_addresses(lifter, bytes, range.start);
    let mut runs = Vec::new();
    let mut run: Option<CodeExtent> = None;
    // End of the last instruction that is not padding, if it was a call.
    let mut called = None;
    lifter.outline(bytes, range.start, |insn, flow, is_padding| {
        let Range { start, end } = insn;
        if is_padding && (run.is_none() || flow.is_none()) {
            if let Some(run) = &mut run {
                run.end = end;
            }
            return;
        }
        let may_begin = start % FUNCTION_ALIGNMENT_BYTES == 0 && !inside.contains(&start);
        if let Some(end) = called.take_if(|end| may_begin && *end < start) {
            runs.extend(run.take().map(|run| CodeExtent { end, ..run }));
        }
        let part = ExtentKind::Fragment;
        run.get_or_insert(CodeExtent {
            start,
            end,
            kind: part,
        })
        .end = end;
        let is_call = flow.is_some_and(Flow::is_call);
        called = is_call.then_some(end);
        let goes_on = match flow {
            Some(Flow::Call(to)) => !never_returns(to),
            flow => flow.is_none_or(Flow::falls_through),
        };
        if !goes_on {
            runs.extend(run.take());
        }
    });
    runs.extend(run);
    runs
}

/// Aligned addresses where no function begins: begins of loops, and code that pops from the stack
/// behind a padded call.
fn interior_addresses(lifter: &mut Lifter, bytes: &[u8], address: u64) -> HashSet<u64> {
    let (mut inside, mut behind) = (HashSet::new(), Vec::new());
    let mut called = None;
    lifter.outline(bytes, address, |insn, flow, is_padding| {
        match flow {
            Some(Flow::Branch { to, .. } | Flow::Jump(to)) if to <= insn.start => {
                inside.insert(to);
            }
            None if is_padding => return,
            _ => {}
        }
        if called.is_some_and(|end| end < insn.start) && insn.start % FUNCTION_ALIGNMENT_BYTES == 0
        {
            behind.push(insn.start);
        }
        let is_call = flow.is_some_and(Flow::is_call);
        called = is_call.then_some(insn.end);
    });
    let sp = lifter.abi_info().stack_pointer;
    let takes = |op: &Op| matches!(op, Op::Add { to, bytes, .. } if *to == sp && *bytes > 0);
    let mut code = LiftedCode::default();
    inside.extend(behind.into_iter().filter(|start| {
        let at = usize::try_from(start - address).unwrap_or(usize::MAX);
        let rest = bytes.get(at..).unwrap_or_default();
        code.clear();
        lifter.lift(
            rest.get(..MAX_INSN_BYTES).unwrap_or(rest),
            *start,
            &mut code,
        );
        code.ops_of(InsnId(0)).iter().any(takes)
    }));
    inside
}

/// Length of the longest instruction of any architecture, in bytes.
const MAX_INSN_BYTES: usize = 16;
