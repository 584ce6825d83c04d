//! The table as a function of the address, against a model that checks one address at a time.

use std::collections::BTreeSet;
use std::format;
use std::string::{String, ToString};
use std::vec::Vec;

use proptest::prelude::*;

use super::{Extent, FdeHeader, FdeId, RowId, RowStart, RunId, Span, Table, TableError};
use crate::addr::Vaddr;
use crate::arch::Abi;
use crate::diff::{DiffScope, differences};
use crate::register::Register;
use crate::row::{CfaRule, RegisterRule, Row};
use crate::text::parse;

const ABI: Abi = Abi::X86_64;

fn header(start: u64, end: u64) -> FdeHeader {
    FdeHeader {
        start: Vaddr(start),
        end: Vaddr(end),
        personality: None,
        lsda: None,
        origin: 0,
    }
}

fn row(offset: i64) -> Row<'static> {
    let mut row = Row::new(Register(16));
    row.cfa = CfaRule::RegisterOffset {
        register: Register(7),
        offset,
    };
    row
}

/// The spans of a table, one a line: `0x10..0x20 entry 0: cfa=rsp+8`.
fn check(table: &str, expected: &str) {
    let table = parse(&format!("arch x86-64 little\n{table}")).unwrap();
    let shown: Vec<String> = table
        .spans()
        .map(|span| {
            let row = table.row(span.row).unwrap();
            let row = row.display(ABI);
            format!("{}..{} entry {}: {row}", span.start, span.end, span.fde.0)
        })
        .collect();
    let expected: Vec<&str> = expected.lines().map(str::trim).collect();
    assert_eq!(shown.join("\n"), expected.join("\n").trim());
}

#[test]
fn equal_neighbours_merge_and_holes_stay() {
    check(
        "fn 0x10..0x20\n 0x10 cfa=rsp+8\n 0x12 cfa=rsp+8\n 0x14 cfa=rsp+16\n 0x16 cfa=rsp+8\n\
         fn 0x20..0x24\n 0x20 cfa=rsp+8\nfn 0x30..0x34\n 0x30 cfa=rsp+8",
        "0x10..0x14 entry 0: cfa=rsp+8
         0x14..0x16 entry 0: cfa=rsp+16
         0x16..0x20 entry 0: cfa=rsp+8
         0x20..0x24 entry 1: cfa=rsp+8
         0x30..0x34 entry 2: cfa=rsp+8",
    );
}

#[test]
fn the_greatest_start_counts_and_the_outer_entry_returns() {
    check(
        "fn 0x30..0x40\n 0x30 cfa=rsp+3\nfn 0x10..0x38\n 0x10 cfa=rsp+1\n 0x18 cfa=rsp+11\n\
         fn 0x14..0x1c\n 0x14 cfa=rsp+2",
        "0x10..0x14 entry 1: cfa=rsp+1
         0x14..0x1c entry 2: cfa=rsp+2
         0x1c..0x30 entry 1: cfa=rsp+11
         0x30..0x40 entry 0: cfa=rsp+3",
    );
}

#[test]
fn among_equal_starts_the_first_counts() {
    check(
        "fn 0x10..0x20\n 0x10 cfa=rsp+1\nfn 0x10..0x30\n 0x10 cfa=rsp+2\n 0x28 cfa=rsp+22\n\
         fn 0x10..0x18\n 0x10 cfa=rsp+3",
        "0x10..0x20 entry 0: cfa=rsp+1
         0x20..0x28 entry 1: cfa=rsp+2
         0x28..0x30 entry 1: cfa=rsp+22",
    );
}

#[test]
#[cfg_attr(miri, ignore = "100,000 entries take hours")]
fn many_entries_at_one_address_take_no_more_than_their_number() {
    // Discarded sections leave their entries at address 0. Quadratic work would take minutes.
    let mut table = Table::new(ABI);
    let id = table.intern(&row(8)).unwrap();
    let rows = [RowStart {
        start: Vaddr(0),
        row: id,
    }];
    for end in 1..=100_000 {
        table.push(header(0, end), &rows).unwrap();
    }
    let spans: Vec<_> = table
        .spans()
        .map(|span| (span.start.0, span.fde.0))
        .collect();
    let expected: Vec<_> = (0..100_000_u64).zip(0..).collect();
    assert_eq!(spans, expected);
    assert_eq!(table.overlaps(10).len(), 10);
}

#[test]
fn an_entry_that_covers_nothing_counts_nowhere() {
    check("fn 0x10..0x10", "");
    check(
        "fn 0x10..0x20\n 0x10 cfa=rsp+1\nfn 0x14..0x14\n 0x14 cfa=rsp+2",
        "0x10..0x20 entry 0: cfa=rsp+1",
    );
}

#[test]
fn the_last_addresses_can_be_covered() {
    check(
        "fn 0x0..0x1\n 0x0 cfa=rsp+1\nfn 0xfffffffffffffffe..0xffffffffffffffff\n \
         0xfffffffffffffffe cfa=rsp+2",
        "0x0..0x1 entry 0: cfa=rsp+1
         0xfffffffffffffffe..0xffffffffffffffff entry 1: cfa=rsp+2",
    );
}

#[test]
fn push_refuses_what_is_out_of_order_and_changes_nothing() {
    let mut table = Table::new(ABI);
    let id = table.intern(&row(8)).unwrap();
    let at = |start| RowStart {
        start: Vaddr(start),
        row: id,
    };
    let refused: [(u64, u64, &[RowStart], u64); 9] = [
        (0x20, 0x10, &[at(0x20)], 0x10),           // ends before it starts
        (0x20, 0x10, &[], 0x10),                   // the same, without rows
        (0x10, 0x20, &[], 0x20),                   // covers something, says nothing
        (0x10, 0x20, &[at(0x11)], 0x11),           // begins late
        (0x10, 0x20, &[at(0xf)], 0xf),             // begins early
        (0x10, 0x20, &[at(0x10), at(0x10)], 0x10), // twice the same address
        (0x10, 0x20, &[at(0x10), at(0x14), at(0x12)], 0x12), // descends
        (0x10, 0x20, &[at(0x10), at(0x20)], 0x20), // at the end
        (0x10, 0x10, &[at(0x10), at(0x11)], 0x11), // more than one row for nothing
    ];
    for (start, end, rows, fault) in refused {
        let expected = TableError::RowOrder {
            at: Vaddr(fault),
            start: Vaddr(start),
            end: Vaddr(end),
        };
        assert_eq!(table.push(header(start, end), rows), Err(expected));
    }
    assert_eq!((table.fdes().len(), table.row_count()), (0, 0));
    for (start, end, rows) in [
        (0x10, 0x10, &[][..]),
        (0x10, 0x10, &[at(0x10)]),
        (0x10, 0x12, &[at(0x10), at(0x11)]),
    ] {
        let id = table.push(header(start, end), rows).unwrap();
        let fde = table.fde(id).unwrap();
        assert!(table.rows(fde).eq(rows.iter().copied()));
    }
}

#[test]
fn a_row_is_at_most_4_gib_behind_the_start() {
    let mut table = Table::new(ABI);
    let row = table.intern(&row(8)).unwrap();
    let at = |start| RowStart {
        start: Vaddr(start),
        row,
    };
    let header = header(1, u64::MAX);
    let last = 1 + u64::from(u32::MAX);
    let refused = table.push(header, &[at(1), at(last + 1)]);
    assert_eq!(refused, Err(TableError::TooLarge));
    assert_eq!((table.fdes().len(), table.runs()), (0, 0));
    let id = table.push(header, &[at(1), at(last)]).unwrap();
    let fde = table.fde(id).unwrap();
    assert!(table.rows(fde).eq([at(1), at(last)]));
}

#[test]
fn rows_are_shared_where_all_of_them_fit() {
    let mut table = Table::new(ABI);
    let row = table.intern(&row(8)).unwrap();
    let at = |start| RowStart {
        start: Vaddr(start),
        row,
    };
    let first = table.push(header(0x10, 0x20), &[at(0x10), at(0x14)]);
    let run = table.fde(first.unwrap()).unwrap().run();
    let nothing = table.push(header(0x10, 0x10), &[]).unwrap();
    let no_rows = table.fde(nothing).unwrap().run();
    let last = u64::MAX - 4;
    let refused = [
        (0x30, 0x34, run, 0x34),      // the last row would hold nowhere
        (0x30, 0x30, run, 0x34),      // all rows would
        (0x30, 0x20, run, 0x34),      // ends before it starts
        (last + 1, u64::MAX, run, 0), // the last row would begin past the address space
        (0x30, 0x34, no_rows, 0x34),  // covers something, says nothing
        (0x30, 0x34, RunId(9), 0x34), // no run of this table
    ];
    for (start, end, run, fault) in refused {
        let expected = TableError::RowOrder {
            at: Vaddr(fault),
            start: Vaddr(start),
            end: Vaddr(end),
        };
        assert_eq!(table.push_run(header(start, end), run), Err(expected));
    }
    assert_eq!((table.fdes().len(), table.row_count()), (2, 2));
    for (start, end, run, count) in [
        (0x30, 0x35, run, 2),
        (last, u64::MAX, run, 0),
        (7, 7, no_rows, 0),
    ] {
        let Ok(id) = table.push_run(header(start, end), run) else {
            assert_eq!(start, last);
            continue;
        };
        let fde = table.fde(id).unwrap();
        let expected = [at(start), at(start.wrapping_add(4))];
        assert!(table.rows(fde).eq(expected.into_iter().take(count)));
        assert_eq!(fde.run(), run);
    }
    assert_eq!((table.row_count(), table.runs()), (4, 2));
}

#[test]
fn equal_rows_are_stored_once() {
    let mut table = Table::new(ABI);
    let mut ids = BTreeSet::new();
    for round in 0..3 {
        for offset in 0..500 {
            let id = table.intern(&row(offset)).unwrap();
            assert_eq!(i64::from(id.0), offset, "round {round}");
            ids.insert(id);
        }
    }
    assert_eq!(table.distinct_rows(), ids.len());
    for (offset, id) in (0..).zip(ids) {
        assert_eq!(table.row(id), Some(row(offset)));
    }
    // The order in which rules were set is not part of a row.
    let (mut ab, mut ba) = (row(8), row(8));
    for n in [3, 6, 40] {
        ab.set_rule(Register(n), Some(RegisterRule::SameValue))
            .unwrap();
        ba.set_rule(Register(43 - n), Some(RegisterRule::SameValue))
            .unwrap();
    }
    ba.set_rule(Register(37), Some(RegisterRule::Undefined))
        .unwrap();
    ba.set_rule(Register(6), Some(RegisterRule::SameValue))
        .unwrap();
    ba.set_rule(Register(37), None).unwrap();
    assert_eq!(ab, ba);
    assert_eq!(table.intern(&ab), table.intern(&ba));
    assert_eq!(table.row(RowId(501)), None);
    assert_eq!(table.encoded_row(RowId(u32::MAX)), &[] as &[u8]);
    assert_eq!(table.fde(FdeId(0)), None);
}

/// An entry of a random table: its start, and the rows as (distance from the one before, row). The
/// last distance leads to the end.
type ModelEntry = (u64, Vec<(u64, u8)>);

/// Addresses stay below this.
const LIMIT: u64 = 64;

fn entries() -> impl Strategy<Value = Vec<ModelEntry>> {
    let rows = proptest::collection::vec((1..8_u64, 0..4_u8), 0..5);
    proptest::collection::vec((0..24_u64, rows), 0..9)
}

fn build(entries: &[ModelEntry]) -> Table {
    let mut table = Table::new(ABI);
    for (start, rows) in entries {
        let mut at = *start;
        let mut starts = Vec::new();
        for (len, n) in rows {
            let row = table.intern(&row(i64::from(*n))).unwrap();
            let start = Vaddr(at);
            starts.push(RowStart { start, row });
            at += len;
        }
        table.push(header(*start, at), &starts).unwrap();
    }
    table
}

/// More starts for an entry.
fn starts() -> impl Strategy<Value = Vec<u64>> {
    proptest::collection::vec(0..24_u64, 0..4)
}

/// The entry and the row that count at one address, by checking every entry.
fn model(table: &Table, at: Vaddr) -> Option<(FdeId, RowId)> {
    let covering = (0_u32..)
        .zip(table.fdes())
        .filter(|(_, fde)| fde.start <= at && at < fde.end);
    // Among equal starts the first: the maximum by (start, index from the end).
    let (n, fde) = covering.max_by_key(|(n, fde)| (fde.start, u32::MAX - n))?;
    let row = table.rows(fde).rfind(|row| row.start <= at)?;
    Some((FdeId(n), row.row))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: unspool_testing::generated(4000), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn spans_say_what_the_model_says(entries in entries()) {
        let table = build(&entries);
        let spans: Vec<_> = table.spans().collect();
        for span in &spans {
            prop_assert!(span.start < span.end);
        }
        for pair in spans.windows(2) {
            let [a, b] = pair else { unreachable!() };
            prop_assert!(a.end <= b.start);
            let touching = (a.end, a.fde, a.row) == (b.start, b.fde, b.row);
            prop_assert!(!touching, "not merged: {a:?} {b:?}");
        }
        for at in (0..LIMIT).map(Vaddr) {
            let span = spans.iter().find(|span| span.start <= at && at < span.end);
            let found = span.map(|span| (span.fde, span.row));
            prop_assert_eq!(found, model(&table, at), "at {}", at);
            let row = found.and_then(|(_, row)| table.row(row));
            prop_assert_eq!(table.row_at(at), row, "at {}", at);
        }
    }

    /// Sharing rows affects storage only.
    #[test]
    fn entries_that_share_rows_say_what_they_say_alone(entries in entries(), starts in starts()) {
        let repeated = entries.iter().flat_map(|(start, rows)| {
            let all = [*start].into_iter().chain(starts.iter().copied());
            all.map(|start| (start, rows.clone()))
        });
        let alone = build(&repeated.collect::<Vec<ModelEntry>>());
        let mut shared = Table::new(ABI);
        for n in 0..4 {
            shared.intern(&row(n)).unwrap();
        }
        for group in alone.fdes().chunks(1 + starts.len()) {
            let rows = alone.rows(&group[0]).collect::<Vec<_>>();
            let rows = rows.iter().map(|start| RowStart {
                row: shared.intern(&alone.row(start.row).unwrap()).unwrap(),
                ..*start
            });
            let rows = rows.collect::<Vec<_>>();
            let first = shared.push(header(group[0].start.0, group[0].end.0), &rows).unwrap();
            let run = shared.fde(first).unwrap().run();
            for fde in &group[1..] {
                shared.push_run(header(fde.start.0, fde.end.0), run).unwrap();
            }
        }
        prop_assert_eq!(shared.runs(), entries.len());
        prop_assert_eq!(shared.row_count(), alone.row_count());
        prop_assert_eq!(shared.to_string(), alone.to_string());
        prop_assert_eq!(shared.overlaps(usize::MAX), alone.overlaps(usize::MAX));
        prop_assert_eq!(differences(&shared, &alone, DiffScope::RowsAndEntries), []);
    }

    /// Extents are adjacent spans of one entry, without gaps.
    #[test]
    fn extents_are_what_an_entry_counts_for(entries in entries()) {
        let table = build(&entries);
        let spans: Vec<_> = table.spans().collect();
        let of_extents: Vec<_> = table.extents().flat_map(Extent::spans).collect();
        prop_assert_eq!(&of_extents, &spans);
        let touch = |a: &Span, b: &Span| (a.end, a.fde) == (b.start, b.fde);
        let expected = spans.chunk_by(touch).map(|run| (run[0].start, run[run.len() - 1].end, run[0].fde));
        let extents = table.extents().map(|extent| (extent.start, extent.end, extent.id));
        prop_assert!(extents.eq(expected));
        for extent in table.extents() {
            let fde = table.fde(extent.id).unwrap();
            prop_assert_eq!(fde, extent.fde);
            prop_assert_eq!(extent.is_whole(), (fde.start, fde.end) == (extent.start, extent.end));
        }
    }

    #[test]
    fn overlaps_are_the_pairs_that_share_an_address(entries in entries()) {
        let table = build(&entries);
        let numbered: Vec<_> = (0_u32..).map(FdeId).zip(table.fdes()).collect();
        let mut expected = BTreeSet::new();
        for (n, (first, a)) in numbered.iter().enumerate() {
            for (second, b) in &numbered[n + 1..] {
                let at = a.start.max(b.start);
                if at < a.end.min(b.end) {
                    let (winner, loser) = if b.start > a.start { (second, first) } else { (first, second) };
                    expected.insert((*winner, *loser, at));
                }
            }
        }
        let found = table.overlaps(usize::MAX);
        let as_set: BTreeSet<_> = found.iter().map(|o| (o.winner, o.loser, o.at)).collect();
        prop_assert_eq!(as_set.len(), found.len(), "a pair is reported twice");
        prop_assert_eq!(&as_set, &expected);
        prop_assert_eq!(table.overlaps(2), &found[..found.len().min(2)]);
    }
}
