//! Code that no entry covers.

use core::cell::LazyCell;
use std::collections::BTreeSet;

use unspool_ir::Vaddr;
use unspool_module::{Binding, Symbol};
use unspool_recover::Text;
use unspool_synth::op::{Flow, Seen};
use unspool_synth::{Image as _, Machine};

use crate::authors::Maker;
use crate::finding::Code;
use crate::subject::Subject;

/// Functions that no entry covers, or not to their ends, and other code that is called or jumped to: the first
/// address without an entry of each. `told` is where control is known to come to behind the end of an entry: nothing more is said of that.
pub(crate) fn uncovered(subject: &Subject<'_>, told: &BTreeSet<Vaddr>) -> Vec<(Vaddr, Code)> {
    let code = subject.file().executable_ranges();
    let is_code = |at: Vaddr| code.iter().any(|range| range.contains(&at));
    let symbols = subject.symbols.iter();
    let functions = symbols.filter(|symbol| is_code(symbol.address));
    // Few files have labels of which it is asked.
    let starts = LazyCell::new(|| {
        let mut starts: Vec<u64> = subject.symbols.iter().map(|it| it.address.0).collect();
        starts.sort_unstable();
        starts
    });
    let functions = functions.filter(|symbol| {
        symbol.is_function || is_label(subject, symbol) && leads_on(subject, symbol, &starts)
    });
    let runs = Runs::of(subject);
    let functions = functions.filter_map(|symbol| {
        let start = symbol.address.0;
        let first = runs.end(subject, start);
        let code = match first == start {
            true => Code::NoEntry,
            false => Code::EntryTooShort,
        };
        let end = start.saturating_add(symbol.size.max(1));
        (first < end).then_some((Vaddr(first), code))
    });
    let outside = subject.program().outside().iter().map(|to| Vaddr(*to));
    let outside = outside.filter(|to| is_code(*to));
    let mut found: Vec<_> = functions
        .chain(outside.map(|to| (to, Code::NoEntry)))
        .filter(|(at, _)| !told.contains(at))
        .collect();
    found.sort_unstable();
    found.dedup_by_key(|(at, _)| *at);
    found
}

/// Whether a symbol that does not say what it is of is of a function: a label that other files see, as people write them, of
/// code, and not within another function.
fn is_label(subject: &Subject<'_>, symbol: &Symbol<'_>) -> bool {
    let at = symbol.address;
    let is_within = || {
        let around = subject.symbols.lookup(at);
        around.is_some_and(|around| around.is_function && around.address < at)
    };
    symbol.binding != Binding::Local
        && subject.maker_at(at) == Maker::People
        && !subject.is_data_label(at)
        && !is_within()
}

/// Whether control leaves what a label stands before, as far as the next symbol: what is no code seldom looks like that. `starts` are the
/// addresses of all symbols, ascending.
fn leads_on(subject: &Subject<'_>, symbol: &Symbol<'_>, starts: &[u64]) -> bool {
    // Lines tell what is code, and a program begins with code.
    if subject.has_lines() || subject.entry() == Some(symbol.address) {
        return true;
    }
    let start = symbol.address.0;
    let next = starts.get(starts.partition_point(|other| *other <= start));
    let text = Text(subject.file());
    let rest = text.bytes_from(start).unwrap_or_default();
    let length = next.and_then(|next| usize::try_from(next - start).ok());
    let bytes = length.and_then(|length| rest.get(..length)).unwrap_or(rest);
    let Some(mut machine) = Machine::of(subject.table().abi()) else {
        return true;
    };
    let mut leads_on = false;
    machine.scan(bytes, start, |_, seen| {
        leads_on |= matches!(seen, Seen::Flow(flow) if !matches!(flow, Flow::Trap));
    });
    leads_on
}

/// For each extent, where the extents end that follow it without a gap.
struct Runs(Vec<u64>);

impl Runs {
    fn of(subject: &Subject<'_>) -> Runs {
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
        Runs(ends)
    }

    /// The first address from `at` on that no extent has.
    fn end(&self, subject: &Subject<'_>, at: u64) -> u64 {
        let place = subject.program().containing(at);
        place
            .and_then(|place| self.0.get(place))
            .map_or(at, |end| *end)
    }
}
