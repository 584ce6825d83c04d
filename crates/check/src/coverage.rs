//! Code without an entry.

use core::cell::LazyCell;
use std::collections::BTreeSet;

use unspool_code_analysis::op::{Flow, ScanEvent};
use unspool_code_analysis::{CodeImage as _, Lifter};
use unspool_elf::{Binding, Symbol};
use unspool_rows::Vaddr;
use unspool_synthesis::ElfCodeImage;

use crate::finding::FindingCode;
use crate::origin::CodeOrigin;
use crate::subject::CheckSubject;

/// Functions that no entry covers, or not to their ends, and other code that is called or jumped
/// to: the first address without an entry of each. `reported` are addresses behind the end of an
/// entry that are already reported.
pub(crate) fn uncovered(
    subject: &CheckSubject<'_>,
    reported: &BTreeSet<Vaddr>,
) -> Vec<(Vaddr, FindingCode)> {
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
        let code = match first == start {
            true => FindingCode::NoEntry,
            false => FindingCode::EntryTooShort,
        };
        let end = start.saturating_add(symbol.size.max(1));
        (first < end).then_some((Vaddr(first), code))
    });
    let outside = subject
        .program()
        .external_targets()
        .iter()
        .map(|to| Vaddr(*to));
    let outside = outside.filter(|to| is_code(*to));
    let mut found: Vec<_> = functions
        .chain(outside.map(|to| (to, FindingCode::NoEntry)))
        .filter(|(at, _)| !reported.contains(at))
        .collect();
    found.sort_unstable();
    found.dedup_by_key(|(at, _)| *at);
    found
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
