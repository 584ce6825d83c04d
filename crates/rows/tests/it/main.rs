//! Properties of every table: it survives printing and parsing, and its rows survive encoding. The
//! differences between two tables are those found address by address.
#![cfg(test)]
#![cfg(feature = "alloc")] // text form and whole tables

use std::collections::BTreeMap;

use proptest::prelude::*;
use unspool_rows::diff::{DiffScope, differences, for_each_range};
use unspool_rows::encoding::{decode, encode};
use unspool_rows::table::Span;
use unspool_rows::{Fde, Row, Table, Vaddr, text};

mod generate;
mod packed_row;

use generate::{TableParts, WithRow, row_parts, table_pair, table_parts};

/// At least this many cases; more with the environment variable PROPTEST_CASES.
fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases: ProptestConfig::default().cases.max(cases),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config(2000))]

    #[test]
    fn a_printed_table_parses_back(parts in table_parts()) {
        let table = parts.build();
        let printed = table.to_string();
        let again = text::parse(&printed);
        prop_assert!(again.is_ok(), "{:?}\n{printed}", again.err());
        let again = again.unwrap();
        prop_assert_eq!(again.abi(), table.abi());
        prop_assert_eq!(differences(&table, &again, DiffScope::RowsAndEntries), []);
        // Empty and hidden entries are in the text too.
        prop_assert_eq!(again.to_string(), printed);
        prop_assert_eq!(again.fdes().len(), table.fdes().len());
        prop_assert_eq!(again.row_count(), table.row_count());
    }

    #[test]
    fn any_text_parses_or_is_refused(text in "(arch x86-64 little\n)?(fn [ 0x.]{0,8}\n)?[ -~\n]{0,80}") {
        let _ = text::parse(&text);
    }

    #[test]
    fn any_word_of_a_row_parses_or_is_refused(row in r"[ =+{}\[\]#0x]{0,6}((cfa|rbp|ra|args|\{|\}|\[|\]|lit1|breg7|same|[ =+;#-]|0x8|5){0,8} ?){1,3}") {
        let text = format!("arch x86-64 little\nfn 0x0..0x1\n 0 {row}");
        // An accepted text means the same as its printed form.
        if let Ok(table) = text::parse(&text) {
            let again = text::parse(&table.to_string());
            prop_assert_eq!(again.map(|t| t.to_string()), Ok(table.to_string()));
        }
    }

    #[test]
    fn an_encoded_row_decodes_to_itself(parts in row_parts()) {
        parts.with_row(|row| {
            let mut bytes = Vec::new();
            encode(row, &mut bytes);
            assert_eq!(decode(&bytes).as_ref(), Some(row));
            // No prefix of a row is the same row: the bytes delimit themselves.
            for len in 0..bytes.len() {
                assert_ne!(decode(&bytes[..len]).as_ref(), Some(row));
            }
        });
    }

    #[test]
    fn equal_rows_are_equal_bytes(a in row_parts(), b in row_parts()) {
        let encoded = |row: &Row<'_>| {
            let mut bytes = Vec::new();
            encode(row, &mut bytes);
            bytes
        };
        a.with_row(|a| b.with_row(|b| assert_eq!(a == b, encoded(a) == encoded(b))));
        a.with_row(|a| a.clone_by_rules(|again| {
            assert_eq!(a, again);
            assert_eq!(encoded(a), encoded(again));
        }));
    }

    #[test]
    fn arbitrary_bytes_decode_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        let mut bytes = bytes;
        if let Some(flags) = bytes.first_mut() {
            *flags &= 0x3f; // the reserved bits would make most inputs trivial
        }
        if let Some(row) = decode(&bytes) {
            // Bytes in a form that is not canonical decode too, but each row has a canonical form.
            let mut canonical = Vec::new();
            encode(&row, &mut canonical);
            prop_assert_eq!(decode(&canonical), Some(row));
            prop_assert!(canonical.len() <= bytes.len());
        }
    }

    #[test]
    fn differences_are_those_of_every_address((a, b) in table_pair()) {
        let (a, b) = (a.build(), b.build());
        for compare in [DiffScope::Rows, DiffScope::RowsAndEntries] {
            let found = differences(&a, &b, compare);
            let mut by_address = BTreeMap::new();
            let mut last = Vaddr(0);
            for difference in &found {
                prop_assert!(last <= difference.start && difference.start < difference.end);
                last = difference.end;
                for at in difference.start.0..difference.end.0 {
                    by_address.insert(at, (difference.left, difference.right));
                }
            }
            for at in 0..generate::LIMIT {
                let (left, right) = (at_address(&a, at), at_address(&b, at));
                let rows = (left.map(|l| l.1), right.map(|r| r.1));
                let same = match compare {
                    DiffScope::Rows => rows.0 == rows.1,
                    DiffScope::RowsAndEntries => rows.0 == rows.1 && left.map(|l| facts(l.0)) == right.map(|r| facts(r.0)),
                };
                prop_assert_eq!(by_address.remove(&at), (!same).then_some(rows), "at {:#x}", at);
            }
            prop_assert!(by_address.is_empty(), "past the last address: {by_address:?}");
        }
        prop_assert_eq!(differences(&a, &a, DiffScope::RowsAndEntries), []);
    }

    #[test]
    fn ranges_cover_what_either_table_covers((a, b) in table_pair()) {
        let (a, b) = (a.build(), b.build());
        let mut ranges: Vec<(Vaddr, Vaddr, Option<Span>, Option<Span>)> = Vec::new();
        for_each_range(&a, &b, |start, end, l, r| ranges.push((start, end, l, r)));
        let mut last = Vaddr(0);
        for (start, end, l, r) in &ranges {
            prop_assert!(last <= *start && start < end);
            last = *end;
            for at in start.0..end.0 {
                prop_assert_eq!(l.and_then(|span| a.row(span.row)), at_address(&a, at).map(|x| x.1));
                prop_assert_eq!(r.and_then(|span| b.row(span.row)), at_address(&b, at).map(|x| x.1));
            }
        }
        for at in (0..generate::LIMIT).map(Vaddr) {
            let inside = ranges.iter().any(|(start, end, ..)| *start <= at && at < *end);
            let covered = at_address(&a, at.0).is_some() || at_address(&b, at.0).is_some();
            prop_assert_eq!(inside, covered, "at {}", at);
        }
    }
}

/// The entry and the row that count at an address, by checking every entry.
fn at_address(table: &Table, at: u64) -> Option<(&Fde, Row<'_>)> {
    let at = Vaddr(at);
    let covering = table.fdes().iter().rev(); // `max_by_key` yields the last of equals
    let fde = covering
        .filter(|fde| fde.start <= at && at < fde.end)
        .max_by_key(|fde| fde.start)?;
    let row = table.rows(fde).rfind(|row| row.start <= at)?;
    Some((fde, table.row(row.row)?))
}

fn facts(fde: &Fde) -> impl PartialEq + use<> {
    (fde.start, fde.end, fde.personality, fde.lsda)
}

#[test]
fn other_encodings_than_the_canonical_decode_too() {
    // cfa=rsp+16 ra=[cfa-8] rbp=[cfa-16], the module's example.
    let canonical = [0x10, 0x10, 0x07, 0x10, 0x46, 0x70, 0x50, 0x78];
    let row = decode(&canonical).unwrap();
    let mut again = Vec::new();
    encode(&row, &mut again);
    assert_eq!(again, canonical);
    let others: [&[u8]; 5] = [
        &[0x10, 0x10, 0x07, 0x10, 0x50, 0x78, 0x46, 0x70], // rules descending
        &[0x10, 0x10, 0x07, 0x10, 0x46, 0x70, 0x50, 0x08, 0x50, 0x78], // a rule replaced
        &[0x10, 0x90, 0x00, 0x07, 0x10, 0x46, 0x70, 0x50, 0x78], // padded number
        &[0x10, 0x10, 0x07, 0x10, 0x46, 0x70, 0x5f, 0x10, 0x78], // long form of register 16
        &[0x18, 0x10, 0x00, 0x07, 0x10, 0x46, 0x70, 0x50, 0x78], // args size 0 spelt out
    ];
    for other in others {
        assert_eq!(decode(other), Some(row), "{other:02x?}");
    }
}

#[test]
fn bytes_that_are_no_row_are_refused() {
    let refused: [&[u8]; 12] = [
        &[],
        &[0x40, 0x10],                         // reserved flag
        &[0x80, 0x10],                         // reserved flag
        &[0x06, 0x10],                         // RA state 3
        &[0x30, 0x10],                         // CFA kind 3
        &[0x00],                               // no return-address column
        &[0x00, 0x80, 0x80, 0x04],             // column 65536
        &[0x10, 0x10, 0x07],                   // no offset
        &[0x20, 0x10, 0x02, 0x31],             // expression cut short
        &[0x00, 0x10, 0xe3],                   // rule kind 7
        &[0x00, 0x10, 0x5f],                   // long register cut short
        &[0x00, 0x10, 0x83, 0x80, 0x80, 0x04], // rule: register 65536
    ];
    for bytes in refused {
        assert_eq!(decode(bytes), None, "{bytes:02x?}");
    }
    let mut too_many = vec![0x00, 0x10];
    too_many.extend((0..65_u8).flat_map(|n| [0x3f, n])); // register n: same value
    assert_eq!(decode(&too_many), None);
    assert!(decode(&too_many[..2 + 64 * 2]).is_some());
}

#[test]
fn the_parts_of_a_table_are_what_was_asked_for() {
    let parts = TableParts::default();
    assert_eq!(parts.build().to_string(), "arch x86-64 little\n");
}
