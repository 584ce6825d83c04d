//! Code without an entry.

use core::cell::LazyCell;
use core::ops::Range;
use std::collections::BTreeSet;

use unspool_code_analysis::op::{Flow, ScanEvent};
use unspool_code_analysis::{CodeImage as _, Lifter};
use unspool_elf::{Binding, Symbol};
use unspool_rows::Vaddr;
use unspool_synthesis::ElfCodeImage;

use crate::finding::{FindingCode, Severity};
use crate::origin::CodeOrigin;
use crate::subject::CheckSubject;

/// Addresses outside all entries that units lead to.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReachedOutside {
    /// Those behind the end of an entry that are already reported.
    pub(crate) reported: BTreeSet<Vaddr>,
    /// Those behind a call at the end of an entry that may return.
    pub(crate) behind_calls: BTreeSet<Vaddr>,
    /// Targets of indirect jumps.
    pub(crate) targets: Vec<Vaddr>,
}

/// Functions that no entry covers, or not to their ends, and other code that is called or jumped
/// to: the first address without an entry of each. Behind the end of an entry there may be data: it
/// is too short if control gets there, and may be if code is there.
pub(crate) fn uncovered(
    subject: &CheckSubject<'_>,
    reached: &ReachedOutside,
) -> Vec<(Vaddr, FindingCode, Severity)> {
    let code = subject.file().executable_ranges();
    let is_code = |at: Vaddr| code.iter().any(|range| range.contains(&at));
    let symbols = subject.symbols.iter();
    let functions = symbols.filter(|symbol| is_code(symbol.address));
    // Computed lazily: few files have labels that need it.
    let starts = LazyCell::new(|| {
        let mut starts: Vec<u64> = subject.symbols.iter().map(|it| it.address.0).collect();
        starts.sort_unstable();
        starts
    });
    let functions = functions.filter(|symbol| {
        symbol.is_function || is_label(subject, symbol) && looks_like_code(subject, symbol, &starts)
    });
    let runs = AdjacentExtents::new(subject);
    let functions = functions.filter_map(|symbol| {
        let start = symbol.address.0;
        let first = runs.end(subject, start);
        let code = if first == start {
            FindingCode::NoEntry
        } else {
            FindingCode::EntryTooShort
        };
        let end = start.saturating_add(symbol.size.max(1));
        // The rest of the function may have entries of its own.
        let extents = subject.program().extents();
        let next = extents.get(extents.partition_point(|extent| extent.start < first));
        let end = next.map_or(end, |next| end.min(next.start));
        let at = Vaddr(first);
        let severity = subject.severity_for_hand_written(at);
        let severity = match code {
            FindingCode::NoEntry => severity,
            _ if !is_code_to_its_end(subject, first..end) => return None,
            _ if reached.behind_calls.contains(&at) => severity,
            _ => severity.min(Severity::Unproven),
        };
        (first < end).then_some((at, code, severity))
    });
    let outside = subject.program().external_targets().iter();
    let outside = outside.map(|to| Vaddr(*to)).chain(reached.targets.clone());
    let outside = outside.filter(|to| is_code(*to)).map(|to| {
        let severity = subject.severity_for_hand_written(to);
        (to, FindingCode::NoEntry, severity)
    });
    let mut found: Vec<_> = functions
        .chain(outside)
        .filter(|(at, ..)| !reached.reported.contains(at))
        .collect();
    found.sort_unstable();
    found.dedup_by_key(|(at, ..)| *at);
    found
}

/// Whether bytes are instructions, and control leaves by the last one that is not padding. Data
/// seldom look like that.
fn is_code_to_its_end(subject: &CheckSubject<'_>, range: Range<u64>) -> bool {
    let text = ElfCodeImage(subject.file());
    let Some(mut lifter) = Lifter::new(subject.table().abi()) else {
        return true;
    };
    let (mut leaves, mut is_known) = (false, true);
    let bytes = text.bytes(range.clone()).unwrap_or_default();
    lifter.outline(bytes, range.start, |_, flow, is_padding| {
        is_known &= flow != Some(Flow::Unknown);
        if !is_padding {
            leaves = flow.is_some_and(|flow| flow.leaves() || matches!(flow, Flow::Jump(_)));
        }
    });
    is_known && leaves
}

/// Whether a symbol without a type is a function: a global label of code, as in hand-written
/// assembly, that is not within another function.
fn is_label(subject: &CheckSubject<'_>, symbol: &Symbol<'_>) -> bool {
    let at = symbol.address;
    let is_within = || {
        let around = subject.symbols.lookup(at);
        around.is_some_and(|around| around.is_function && around.address < at)
    };
    symbol.binding != Binding::Local
        && subject.origin_at(at) == CodeOrigin::HandWritten
        && !subject.is_data_label(at)
        && !is_within()
}

/// Whether control leaves the code behind a label before the next symbol: data seldom looks like
/// that. `starts` are the addresses of all symbols, ascending.
fn looks_like_code(subject: &CheckSubject<'_>, symbol: &Symbol<'_>, starts: &[u64]) -> bool {
    // Line numbers mark code, and a program begins with code.
    if subject.has_lines() || subject.entry() == Some(symbol.address) {
        return true;
    }
    let start = symbol.address.0;
    let next = starts.get(starts.partition_point(|other| *other <= start));
    let text = ElfCodeImage(subject.file());
    let rest = text.bytes_from(start).unwrap_or_default();
    let length = next.and_then(|next| usize::try_from(next - start).ok());
    let bytes = length.and_then(|length| rest.get(..length)).unwrap_or(rest);
    let Some(mut machine) = Lifter::new(subject.table().abi()) else {
        return true;
    };
    let mut leads_on = false;
    machine.scan(bytes, start, |_, seen| {
        leads_on |= matches!(seen, ScanEvent::Flow(flow) if !matches!(flow, Flow::Trap | Flow::Unknown));
    });
    leads_on
}

/// For each extent, the end of the extents that follow it without a gap.
struct AdjacentExtents(Vec<u64>);

impl AdjacentExtents {
    fn new(subject: &CheckSubject<'_>) -> AdjacentExtents {
        let extents = subject.program().extents();
        let mut ends = Vec::with_capacity(extents.len());
        let mut next = (u64::MAX, u64::MAX);
        for extent in extents.iter().rev() {
            let end = if extent.end == next.0 {
                next.1
            } else {
                extent.end
            };
            ends.push(end);
            next = (extent.start, end);
        }
        ends.reverse();
        AdjacentExtents(ends)
    }

    /// The first address from `at` on that is in no extent.
    fn end(&self, subject: &CheckSubject<'_>, at: u64) -> u64 {
        let place = subject.program().index_containing(at);
        place
            .and_then(|place| self.0.get(place))
            .map_or(at, |end| *end)
    }
}
