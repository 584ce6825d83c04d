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
    let functions = functions.filter_map(|symbol| {
        let (start, size) = (symbol.address.0, symbol.size);
        let first = first_uncovered(subject, start, start.saturating_add(size.max(1)))?;
        let code = match first == start {
            true => Code::NoEntry,
            false => Code::EntryTooShort,
        };
        Some((Vaddr(first), code))
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

/// The first address of a range that no extent has.
fn first_uncovered(subject: &Subject<'_>, start: u64, end: u64) -> Option<u64> {
    let program = subject.program();
    let mut at = start;
    while at < end {
        let extent = program
            .extents()
            .get(program.containing(at).unwrap_or(usize::MAX));
        let Some(extent) = extent else {
            return Some(at);
        };
        at = extent.end;
    }
    None
}
