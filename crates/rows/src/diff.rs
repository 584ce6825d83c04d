//! Two tables compared over every address.

use alloc::vec::Vec;

use crate::addr::Vaddr;
use crate::row::Row;
use crate::table::{Fde, Span, Table};

/// A range of addresses for which two tables differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowDifference<'t> {
    /// First address.
    pub start: Vaddr,
    /// One past the last address.
    pub end: Vaddr,
    /// The left table's row, `None` where it has a hole.
    pub left: Option<Row<'t>>,
    /// The right table's row, `None` where it has a hole.
    pub right: Option<Row<'t>>,
}

/// What is compared at every address: rows only, or entry bounds, personality and LSDA too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiffScope {
    /// Rows only.
    Rows,
    /// Rows, and the entry's other fields.
    RowsAndEntries,
}

/// Every range where the tables differ, ascending.
#[must_use]
pub fn differences<'t>(
    left: &'t Table,
    right: &'t Table,
    scope: DiffScope,
) -> Vec<RowDifference<'t>> {
    let mut found: Vec<RowDifference<'t>> = Vec::new();
    for_each_range(left, right, |start, end, l, r| {
        let l_row = l.and_then(|span| left.row(span.row));
        let r_row = r.and_then(|span| right.row(span.row));
        let same_entry =
            scope == DiffScope::Rows || entry(left, l).map(facts) == entry(right, r).map(facts);
        if l_row != r_row || !same_entry {
            found.push(RowDifference {
                start,
                end,
                left: l_row,
                right: r_row,
            });
        }
    });
    found
}

/// Calls `visit` for every range on which both tables are constant and at least one has a row.
pub fn for_each_range(
    left: &Table,
    right: &Table,
    mut visit: impl FnMut(Vaddr, Vaddr, Option<Span>, Option<Span>),
) {
    let (mut lefts, mut rights) = (left.spans().peekable(), right.spans().peekable());
    let mut at = Vaddr(0);
    loop {
        while lefts.next_if(|span| span.end <= at).is_some() {}
        while rights.next_if(|span| span.end <= at).is_some() {}
        let (l, r) = (lefts.peek().copied(), rights.peek().copied());
        let bounds = [l, r]
            .into_iter()
            .flatten()
            .flat_map(|span| [span.start, span.end]);
        let Some(end) = bounds.filter(|bound| *bound > at).min() else {
            return;
        };
        let inside = |span: &Span| span.start <= at;
        let (l, r) = (l.filter(inside), r.filter(inside));
        if l.is_some() || r.is_some() {
            visit(at, end, l, r);
        }
        at = end;
    }
}

fn entry(table: &Table, span: Option<Span>) -> Option<&Fde> {
    table.fde(span?.fde)
}

type EntryAttributes = (Vaddr, Vaddr, Option<crate::addr::Pointer>, Option<Vaddr>);

fn facts(fde: &Fde) -> EntryAttributes {
    (fde.start, fde.end, fde.personality, fde.lsda)
}
