//! Code that no entry covers.

use unspool_ir::Vaddr;

use crate::finding::Code;
use crate::subject::Subject;

/// Functions that no entry covers, or not to their ends, and other code that is called or jumped to: the first
/// address without an entry of each.
pub(crate) fn uncovered(subject: &Subject<'_>) -> Vec<(Vaddr, Code)> {
    let code = subject.file().executable_ranges();
    let is_code = |at: u64| code.iter().any(|range| range.contains(&Vaddr(at)));
    let symbols = subject.symbols.iter();
    let functions = symbols.filter(|symbol| symbol.is_function && is_code(symbol.address.0));
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
    let outside = subject.program().outside().iter().copied();
    let outside = outside.filter(|to| is_code(*to));
    let mut found: Vec<_> = functions
        .chain(outside.map(|to| (Vaddr(to), Code::NoEntry)))
        .collect();
    found.sort_unstable();
    found.dedup_by_key(|(at, _)| *at);
    found
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
