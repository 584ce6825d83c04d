//! Files made to mislead: refused by `open`, or looked up in without harm and detected by
//! `compare`.

use unspool_compiled_table::call_test::window;
use unspool_compiled_table::{
    CompiledTable, ExecutableCode, Mismatch, MismatchKind, ModuleKey, RowRef, TableCorruption,
    TableOpenError, check_digest, compare, encode,
};
use unspool_rows::{Table, Vaddr, text};

use crate::oracle::{TableOracle, TamperVerdict, check, encode_with, judge};
use crate::parts::{FileParts, FileSection};

const TEXT: &str = "arch x86-64 little
fn 0x1000..0x1010 lsda=0x8000
  0x1000 cfa=rsp+8 ra=[cfa-8]
  0x1004 cfa=rsp+16 ra=[cfa-8]
fn 0x1020..0x1030
  0x1020 cfa=rsp+8 ra=[cfa-8]
";

const CALLS: [u8; 16] = [
    0xff, 0xd0, 0xe8, 0, 0, 0, 0, 0xff, 0xd0, 0x90, 0x90, 0xff, 0xd0, 0x90, 0x90, 0x90,
];

fn table() -> Table {
    text::parse(TEXT).unwrap()
}

fn code() -> ExecutableCode<'static> {
    ExecutableCode {
        ranges: vec![(Vaddr(0x1000), &CALLS), (Vaddr(0x1020), &CALLS)],
    }
}

/// The file of these two entries.
pub(crate) fn written() -> Vec<u8> {
    check(&table(), &code())
}

fn parts() -> FileParts {
    FileParts::from_file(&written())
}

fn judge_parts(parts: &FileParts) -> TamperVerdict {
    let table = table();
    judge(
        &TableOracle::new(&table),
        &code(),
        &parts.build(),
        0xf00..0x1100,
    )
}

fn open_error(file: &[u8]) -> TableOpenError {
    CompiledTable::open(file).unwrap_err()
}

#[test]
fn versions_and_magic() {
    let file = parts().build();
    for (at, new) in [(0, b'U'), (7, 1)] {
        let mut changed = file.clone();
        changed[at] = new;
        assert_eq!(open_error(&changed), TableOpenError::Magic);
    }
    for version in [0, 1, 0x100, 0xffff_u16] {
        let mut changed = file.clone();
        changed[8..10].copy_from_slice(&version.to_le_bytes());
        assert_eq!(open_error(&changed), TableOpenError::Version(version));
        // For any content: a later version may have another header.
        assert_eq!(open_error(&changed[..32]), TableOpenError::Version(version));
    }
}

#[test]
fn values_that_a_header_cannot_have() {
    let file = parts().build();
    for (at, values) in [
        (12, &[0, 2, 5, 16][..]),
        (13, &[0, 3, 255]),
        (14, &[3, 255]),
        (15, &[0, 1, 5, 0x22, 255]),
        (30, &[0, 1, 5, 255]),
        (31, &[0, 1, 5, 255]),
    ] {
        for value in values {
            let mut changed = file.clone();
            changed[at] = *value;
            let expected = TableOpenError::Header {
                offset: at as u64,
                value: u64::from(*value),
            };
            assert_eq!(open_error(&changed), expected);
        }
    }
    let mut changed = file.clone();
    changed[16] = 1;
    let expected = TableOpenError::Header {
        offset: 16,
        value: 1,
    };
    assert_eq!(open_error(&changed), expected);
}

#[test]
fn counts_that_are_too_great() {
    let file = parts().build();
    let len = file.len() as u64;
    for count in [65, 0x7fff, u16::MAX] {
        let mut changed = file.clone();
        changed[28..30].copy_from_slice(&count.to_le_bytes());
        let expected = TableOpenError::Header {
            offset: 28,
            value: u64::from(count),
        };
        assert_eq!(open_error(&changed), expected);
    }
    // A directory that extends past the end.
    let mut short = file[..64].to_vec();
    short[24..28].copy_from_slice(&64_u32.to_le_bytes());
    let expected = TableOpenError::Truncated {
        len: 64,
        expected: 80,
    };
    assert_eq!(open_error(&short), expected);
    // A table longer than its bytes.
    let mut changed = file.clone();
    changed[24..28].copy_from_slice(&u32::MAX.to_le_bytes());
    let expected = TableOpenError::Truncated {
        len,
        expected: u64::from(u32::MAX),
    };
    assert_eq!(open_error(&changed), expected);
}

#[test]
fn sections_out_of_bounds() {
    let file = parts().build();
    let len = u32::try_from(file.len()).unwrap();
    for n in 0..parts().sections.len() {
        for (offset, length) in [
            (len, 1),
            (len + 1, 0),
            (0, len + 1),
            (u32::MAX, u32::MAX),
            (1, u32::MAX),
            (u32::MAX, 1),
        ] {
            let mut changed = file.clone();
            let at = 64 + 16 * n;
            changed[at + 8..at + 12].copy_from_slice(&offset.to_le_bytes());
            changed[at + 12..at + 16].copy_from_slice(&length.to_le_bytes());
            let tag = parts().sections[n].tag;
            assert_eq!(open_error(&changed), TableOpenError::Section(tag));
        }
    }
}

#[test]
fn sections_that_overlap() {
    // Every section on the bytes of every other, of the header, of the directory.
    let file = parts().build();
    let count = parts().sections.len();
    let table = table();
    for n in 0..count {
        let at = 64 + 16 * n;
        for other in 0..count {
            let from = 64 + 16 * other;
            let mut changed = file.clone();
            changed.copy_within(from + 8..from + 16, at + 8);
            judge(&TableOracle::new(&table), &code(), &changed, 0xf00..0x1100);
            changed.copy_from_slice(&file);
            changed.copy_within(from + 8..from + 12, at + 8);
            judge(&TableOracle::new(&table), &code(), &changed, 0xf00..0x1100);
        }
        for start in [0_u32, 1, 64, 65] {
            let mut changed = file.clone();
            changed[at + 8..at + 12].copy_from_slice(&start.to_le_bytes());
            judge(&TableOracle::new(&table), &code(), &changed, 0xf00..0x1100);
        }
    }
}

#[test]
fn unknown_sections() {
    let mut parts = parts();
    parts.sections.insert(
        0,
        FileSection {
            tag: *b"NEW ",
            flags: 0,
            content: vec![1, 2, 3],
        },
    );
    assert_eq!(judge_parts(&parts), TamperVerdict::Equal);
    // Other flags have no meaning in this version.
    parts.sections[0].flags = 2;
    assert_eq!(judge_parts(&parts), TamperVerdict::Equal);
    for flags in [1, 3] {
        parts.sections[0].flags = flags;
        assert_eq!(
            open_error(&parts.build()),
            TableOpenError::Section(*b"NEW ")
        );
    }
    // 64 sections are allowed.
    parts.sections[0].flags = 0;
    let unknown = parts.sections[0].clone();
    parts.sections.resize(64, unknown.clone());
    assert_eq!(judge_parts(&parts), TamperVerdict::Equal);
    parts.sections.push(unknown);
    assert_eq!(judge_parts(&parts), TamperVerdict::Refused);
}

#[test]
fn the_order_of_sections_and_bytes_between_them_mean_nothing() {
    let mut parts = parts();
    parts.sections.reverse();
    assert_eq!(judge_parts(&parts), TamperVerdict::Equal);
    let padding = FileSection {
        tag: *b"PAD ",
        flags: 0,
        content: vec![0xff; 7],
    };
    for n in (0..parts.sections.len()).rev() {
        parts.sections.insert(n, padding.clone());
    }
    assert_eq!(judge_parts(&parts), TamperVerdict::Equal);
}

#[test]
fn a_tag_twice_is_refused() {
    for n in 0..parts().sections.len() {
        let mut parts = parts();
        let again = parts.sections[n].clone();
        parts.sections.push(again);
        let tag = parts.sections[n].tag;
        assert_eq!(open_error(&parts.build()), TableOpenError::Section(tag));
        // Also where one of the two is empty.
        parts.sections[n].content.clear();
        assert_eq!(open_error(&parts.build()), TableOpenError::Section(tag));
    }
}

#[test]
fn keys() {
    for bad in [&[][..], &[0, 1, 2], &[3, 1], &[1; 21], &[1; 23]] {
        let mut parts = parts();
        *parts.section(b"KEY ") = bad.to_vec();
        assert_eq!(
            open_error(&parts.build()),
            TableOpenError::Section(*b"KEY ")
        );
    }
    let table = table();
    for key in [
        ModuleKey {
            build_id: &[],
            content: &[0; 20],
        },
        ModuleKey {
            build_id: &[7; 64],
            content: &[0; 20],
        },
        ModuleKey {
            build_id: &[],
            content: &[9; 20],
        },
    ] {
        let bytes = encode(&table, key, &ExecutableCode::default(), &[])
            .unwrap()
            .bytes;
        assert_eq!(CompiledTable::open(&bytes).unwrap().key(), key);
    }
}

#[test]
fn arrays_of_unequal_length() {
    for (tag, size, refused) in [
        (b"STRT", 2, b"PIEC"),
        (b"PIEC", 4, b"PIEC"),
        (b"LSDX", 4, b"LSDX"),
        (b"PPGS", 4, b"PBKT"),
        (b"PBKT", 2, b"PBKT"),
        (b"PBKT", 1, b"PBKT"),
        (b"PBKT", 130, b"PBKT"),
        (b"CPGS", 4, b"CBKT"),
        (b"CBKT", 2, b"CBKT"),
        (b"CBKT", 1, b"CBKT"),
        (b"CBKT", 130, b"CBKT"),
    ] {
        let expected = TableOpenError::Section(*refused);
        let mut parts = parts();
        let length = parts.section(tag).len();
        parts.section(tag).truncate(length - size);
        assert_eq!(open_error(&parts.build()), expected);
        parts.section(tag).resize(length + size, 0);
        assert_eq!(open_error(&parts.build()), expected);
    }
}

#[test]
fn buckets_of_a_page_past_the_last() {
    // They would make a page of the end of the index of pages.
    for (pages, buckets) in [(b"PPGS", b"PBKT"), (b"CPGS", b"CBKT")] {
        let mut parts = parts();
        parts.section(buckets).extend_from_slice(&[0; 130]);
        assert_eq!(
            open_error(&parts.build()),
            TableOpenError::Section(*buckets)
        );
        // With an end they are a page without elements.
        let [start, end] = parts.numbers(pages, 4)[..] else {
            panic!("one page")
        };
        parts.set_numbers(pages, 4, [start, end, end]);
        assert_eq!(judge_parts(&parts), TamperVerdict::Equal);
    }
}

#[test]
fn unsorted_starts() {
    let mut parts = parts();
    parts.set(b"STRT", 2, 0, 0x1020);
    parts.set(b"STRT", 2, 1, 0x1000);
    assert_eq!(judge_parts(&parts), TamperVerdict::Different);
    parts.set(b"STRT", 2, 0, 0x1000);
    assert_eq!(judge_parts(&parts), TamperVerdict::Different);
}

#[test]
fn a_piece_twice() {
    // No look-up finds the first of the two, so no answer is wrong; the table is still invalid.
    let text =
        "arch x86-64 little\nfn 0x10..0x20\n  0x10 cfa=rsp+8\nfn 0x20..0x30\n  0x20 cfa=rsp+8\n";
    let table = text::parse(text).unwrap();
    let mut parts = FileParts::from_file(&check(&table, &ExecutableCode::default()));
    parts.set_numbers(b"STRT", 2, [0x10, 0x10, 0x20]);
    let records = parts.numbers(b"PIEC", 4);
    parts.set_numbers(b"PIEC", 4, [records[0], records[0], records[1]]);
    parts.set_numbers(b"PPGS", 4, [0, 3]);
    parts.set_numbers(b"PBKT", 2, [0].into_iter().chain([3; 64]));
    parts.set(b"GAPS", 4, 0, 2);
    let file = parts.build();
    let compiled = CompiledTable::open(&file).unwrap();
    for pc in 0..0x40 {
        let entry = compiled.entry(Vaddr(pc)).unwrap();
        let start = entry.map(|entry| entry.start);
        let expected = (0x10..0x30).contains(&pc).then_some(Vaddr(pc & 0x30));
        assert_eq!(start, expected, "{pc:#x}");
    }
    let verdict = judge(
        &TableOracle::new(&table),
        &ExecutableCode::default(),
        &file,
        0..0x40,
    );
    assert_eq!(verdict, TamperVerdict::Different);
}

#[test]
fn wrong_counts_of_pieces() {
    // Both pieces are in bucket 4 of the only page.
    let mut original = parts();
    assert_eq!(original.numbers(b"PPGS", 4), [0, 2]);
    let buckets = original.numbers(b"PBKT", 2);
    assert!(
        buckets
            .into_iter()
            .eq((0..65).map(|n| if n < 5 { 0 } else { 2 }))
    );
    for (index, value) in [
        (0, 1),
        (0, 2),
        (0, 1 << 31),
        (0, u32::MAX),
        (1, 0),
        (1, 1),
        (1, 3),
        (1, 0x1_0002),
        (1, u32::MAX),
    ] {
        let mut parts = original.clone();
        parts.set(b"PPGS", 4, index, value.into());
        assert_eq!(
            judge_parts(&parts),
            TamperVerdict::Different,
            "{index} {value}"
        );
    }
    for (index, value) in [
        (0, 1),
        (0, 0xffff),
        (3, 2),
        (4, 1),
        (4, 2),
        (5, 0),
        (5, 1),
        (5, 3),
        (5, 17),
        (5, 0xffff),
        (40, 0),
        (63, 1 << 15),
        (64, 0),
        (64, 1),
        (64, 3),
    ] {
        let mut parts = original.clone();
        parts.set(b"PBKT", 2, index, value);
        assert_eq!(
            judge_parts(&parts),
            TamperVerdict::Different,
            "{index} {value}"
        );
    }
    // A page that begins with elements of the page before, in its own count and that of its
    // buckets.
    let mut parts = original.clone();
    parts.set_numbers(b"PPGS", 4, [0, 1, 2]);
    let one = (0..65).map(|n| if n < 5 { 0 } else { 2 });
    parts.set_numbers(b"PBKT", 2, one.chain([1; 65]));
    assert_eq!(judge_parts(&parts), TamperVerdict::Different);
    // All counts of the only page one higher, as if there were a page before it.
    let mut parts = original.clone();
    parts.set(b"PPGS", 4, 0, u32::MAX.into());
    parts.set_numbers(b"PBKT", 2, (0..65).map(|n| if n < 5 { 1 } else { 3 }));
    assert_eq!(judge_parts(&parts), TamperVerdict::Different);
}

#[test]
fn wrong_counts_of_steps() {
    // Row 1 from 0x1008 and row 0 from 0x1020, both in bucket 4 of the only page.
    let mut original = parts();
    assert_eq!(original.numbers(b"CPGS", 4), [0, 2]);
    let buckets = original.numbers(b"CBKT", 2);
    assert!(
        buckets
            .into_iter()
            .eq((0..65).map(|n| if n < 5 { 0 } else { 2 }))
    );
    assert_eq!(original.numbers(b"CSTP", 2), [1 << 9 | 1, 4 << 9]);
    let answer = |parts: &FileParts, address: u64| {
        let file = parts.build();
        let compiled = CompiledTable::open(&file).unwrap();
        let before = window(&CALLS, usize::try_from(address % 16).unwrap());
        compiled.call_sites().row(Vaddr(address), before)
    };
    let addresses = [0x1002, 0x100d, 0x1022];
    let all = |parts: &FileParts| addresses.map(|address| answer(parts, address));
    let (ask, row) = (Ok(None), |number| Ok(Some(RowRef(number))));
    assert_eq!(all(&original), [ask, row(1), row(0)]);
    for (tag, size, index, value, expected) in [
        // More elements than exist.
        (b"CPGS", 4, 0, 1, [Err(TableCorruption::CallSites); 3]),
        (b"CPGS", 4, 0, 3, [Err(TableCorruption::CallSites); 3]),
        (
            b"CPGS",
            4,
            0,
            0xffff_ffff,
            [Err(TableCorruption::CallSites); 3],
        ),
        (b"CBKT", 2, 4, 0xffff, [Err(TableCorruption::CallSites); 3]),
        (b"CBKT", 2, 5, 3, [Err(TableCorruption::CallSites); 3]),
        (b"CBKT", 2, 5, 16, [Err(TableCorruption::CallSites); 3]),
        (b"CBKT", 2, 5, 17, [Err(TableCorruption::CallSites); 3]),
        (b"CBKT", 2, 5, 0xffff, [Err(TableCorruption::CallSites); 3]),
        // Fewer, and others.
        (b"CBKT", 2, 4, 1, [row(1), row(1), row(0)]),
        (b"CBKT", 2, 4, 2, [row(0); 3]),
        (b"CBKT", 2, 5, 1, [ask, row(1), row(1)]),
        (b"CBKT", 2, 5, 0, [ask; 3]),
    ] {
        let mut parts = original.clone();
        parts.set(tag, size, index, value);
        assert_eq!(all(&parts), expected, "{index} {value}");
        let is_right = expected == [ask; 3];
        let verdict = judge_parts(&parts);
        assert_eq!(verdict == TamperVerdict::Equal, is_right, "{index} {value}");
    }
}

#[test]
fn buckets_that_do_not_ascend() {
    // One row over a whole page: its only piece starts in the first bucket, the others are empty.
    let text = "arch x86-64 little\nfn 0x10000..0x1ffff\n  0x10000 cfa=rsp+8\n";
    let table = text::parse(text).unwrap();
    let source = TableOracle::new(&table);
    let original = FileParts::from_file(&check(&table, &ExecutableCode::default()));
    let verdict = |parts: &FileParts| {
        let addresses = (0x1_0000..0x3_0000).step_by(0x100);
        judge(
            &source,
            &ExecutableCode::default(),
            &parts.build(),
            addresses,
        )
    };
    for (bucket, count) in [
        (0, 1),
        (1, 0),
        (5, 0),
        (5, 2),
        (5, 0xffff),
        (62, 0),
        (63, 2),
        (64, 0),
        (64, 2),
    ] {
        let mut parts = original.clone();
        parts.set(b"PBKT", 2, bucket, count);
        assert_eq!(
            verdict(&parts),
            TamperVerdict::Different,
            "{bucket} {count}"
        );
    }
    // A truncated last page.
    for more in [1, 2, 64, 66] {
        let mut parts = original.clone();
        parts.set(b"PPGS", 4, 1, 1);
        parts.section(b"PPGS").extend_from_slice(&[1, 0, 0, 0]);
        let page = [0, 0].repeat(more);
        parts.section(b"PBKT").extend_from_slice(&page);
        assert_eq!(verdict(&parts), TamperVerdict::Refused);
    }
    let mut parts = original.clone();
    parts.section(b"PPGS").extend_from_slice(&[1, 0, 0, 0]);
    parts.section(b"PBKT").extend_from_slice(&[0; 130]);
    assert_eq!(verdict(&parts), TamperVerdict::Equal);
    // Its own number of elements, and that of the page.
    for (page, bucket) in [(2, 0), (0, 1)] {
        let mut parts = parts.clone();
        parts.set(b"PPGS", 4, 2, page);
        parts.set(b"PBKT", 2, 65 + 64, bucket);
        assert_eq!(verdict(&parts), TamperVerdict::Different);
    }
}

#[test]
fn pages_past_the_end_of_the_address_space() {
    // An odd entry near 2^64, and a piece of it in a page that would begin at address 0.
    let text = "arch x86-64 little
fn 0xfffffffffffffff0..0xfffffffffffffff8 lsda=0x100
  0xfffffffffffffff0 cfa=rsp+8
fn 0xfffffffffffffff8..0xfffffffffffffffc lsda=0xf00000000000
  0xfffffffffffffff8 cfa=rsp+8
";
    let table = text::parse(text).unwrap();
    let mut parts = FileParts::from_file(
        &encode_with(&table, &ExecutableCode::default())
            .unwrap()
            .bytes,
    );
    parts.section(b"PPGS").extend_from_slice(&[3, 0, 0, 0]);
    let page = (0..65).map(|n| u64::from(n > 0));
    let all = parts.numbers(b"PBKT", 2).into_iter().chain(page);
    parts.set_numbers(b"PBKT", 2, all);
    parts.section(b"STRT").extend_from_slice(&[0x10, 0]);
    let record = parts.section(b"PIEC")[4..].to_vec();
    parts.section(b"PIEC").extend_from_slice(&record);
    parts.set(b"ODDS", 4, 1, 2);
    assert_eq!(
        open_error(&parts.build()),
        TableOpenError::Section(*b"PPGS")
    );

    // More pages than a table may have.
    for (pages, buckets) in [(b"PPGS", b"PBKT"), (b"CPGS", b"CBKT")] {
        let mut parts = self::parts();
        parts.section(pages).resize(4 * (65_537 + 1), 2);
        parts.section(buckets).resize(65_537 * 130, 2);
        assert_eq!(open_error(&parts.build()), TableOpenError::Section(*pages));
        parts.section(pages).truncate(4 * (65_536 + 1));
        parts.section(buckets).truncate(65_536 * 130);
        assert!(CompiledTable::open(&parts.build()).is_ok());
    }
}

#[test]
fn a_piece_in_the_midst_of_a_hole() {
    // Neither end of the hole shows it.
    let mut parts = parts();
    *parts.section(b"STRT") = [0x1000, 0x1014, 0x1020_u16].map(u16::to_le_bytes).concat();
    let records = parts.section(b"PIEC").clone();
    let (first, last) = records.split_at(4);
    // The first ends at 0x1010, the new one 8 bytes before the last begins.
    let first = [&[4], &first[1..]].concat();
    let new = [&[8], &last[1..]].concat();
    *parts.section(b"PIEC") = [&first, &new, last].concat();
    parts.set(b"GAPS", 2, 0, 2);
    parts.set(b"PPGS", 4, 1, 3);
    parts.set_numbers(b"PBKT", 2, (0..65).map(|n| if n < 5 { 0 } else { 3 }));
    let file = parts.build();
    let compiled = CompiledTable::open(&file).unwrap();
    let found = |pc| compiled.lookup(Vaddr(pc)).unwrap().is_some();
    let covered = [
        0x100f, 0x1010, 0x1013, 0x1014, 0x1017, 0x1018, 0x101f, 0x1020,
    ]
    .map(found);
    assert_eq!(
        covered,
        [true, false, false, true, true, false, false, true]
    );
    assert_eq!(judge_parts(&parts), TamperVerdict::Different);
}

#[test]
fn an_odd_piece_without_a_record() {
    let text = "arch x86-64 little
fn 0x1000..0x1030
  0x1000 cfa=rsp+8
fn 0x1010..0x1020
  0x1010 cfa=rsp+16
fn 0xfff0..0x10010
  0xfff0 cfa=rsp+8
";
    let table = text::parse(text).unwrap();
    let original = FileParts::from_file(&check(&table, &ExecutableCode::default()));
    // The records are of pieces 0, 2, and 3 to 4. Wrong: another first piece, or fewer pieces.
    for (field, value, pc) in [(0, 1, 0x1000), (14, 4, 0xfff0), (15, 1, 0x10000)] {
        let mut parts = original.clone();
        let entry = |parts: &FileParts| {
            let file = parts.build();
            let compiled = CompiledTable::open(&file).unwrap();
            compiled.entry(Vaddr(pc))
        };
        assert!(entry(&parts).unwrap().is_some());
        parts.set(b"ODDS", 4, field, value);
        assert_eq!(entry(&parts), Err(TableCorruption::Entries), "{field}");
    }
}

/// A file with all steps to one row, and the answer for an address that has a step.
fn with_steps_to(row: u16) -> (Vec<u8>, Result<Option<RowRef>, TableCorruption>) {
    let mut parts = parts();
    let steps = parts.numbers(b"CSTP", 2);
    let changed = steps.into_iter().map(|step| step & !511 | u64::from(row));
    parts.set_numbers(b"CSTP", 2, changed);
    let file = parts.build();
    let answer = CompiledTable::open(&file)
        .unwrap()
        .call_sites()
        .row(Vaddr(0x100d), window(&CALLS, 13));
    (file, answer)
}

#[test]
fn row_511_asks() {
    let (file, answer) = with_steps_to(511);
    assert_eq!(answer, Ok(None));
    // Even in a table that has such a row; and asking is never wrong.
    let mut parts = FileParts::from_file(&file);
    let end = *parts.numbers(b"ROWX", 2).last().unwrap();
    parts.set_numbers(b"ROWX", 2, [end; 600]);
    let file = parts.build();
    let compiled = CompiledTable::open(&file).unwrap();
    assert_eq!(compiled.distinct_rows(), 600);
    let answer = compiled.call_sites().row(Vaddr(0x100d), window(&CALLS, 13));
    assert_eq!(answer, Ok(None));
    let table = table();
    let (file, _) = with_steps_to(511);
    let verdict = judge(&TableOracle::new(&table), &code(), &file, 0xf00..0x1100);
    assert_eq!(verdict, TamperVerdict::Equal);
}

#[test]
fn steps_to_rows_that_there_are_not() {
    // The table has two rows.
    let table = table();
    for row in [2, 3, 255, 256, 509, 510] {
        let (file, answer) = with_steps_to(row);
        assert_eq!(answer, Ok(Some(RowRef(row))));
        let compiled = CompiledTable::open(&file).unwrap();
        assert_eq!(compiled.row(RowRef(row)), Err(TableCorruption::Rows));
        assert_eq!(
            compiled.encoded_row(RowRef(row)),
            Err(TableCorruption::Rows)
        );
        let verdict = judge(&TableOracle::new(&table), &code(), &file, 0xf00..0x1100);
        assert_eq!(verdict, TamperVerdict::Different, "{row}");
        let comparison = compare(&table, &compiled, &code());
        let at_calls = |mismatch: &Mismatch| mismatch.what == MismatchKind::CallSite;
        assert!(comparison.mismatches.iter().all(at_calls));
    }
    // To the wrong row that exists.
    for row in [0, 1] {
        let (file, _) = with_steps_to(row);
        let verdict = judge(&TableOracle::new(&table), &code(), &file, 0xf00..0x1100);
        assert_eq!(verdict, TamperVerdict::Different, "{row}");
    }
}

#[test]
fn rows_that_are_no_rows() {
    for bad in [&[0xff; 16][..], &[0; 1], &[0x30, 0x10]] {
        let mut parts = parts();
        let length = parts.section(b"ROWS").len();
        *parts.section(b"ROWS") = bad.iter().copied().cycle().take(length).collect();
        assert_eq!(judge_parts(&parts), TamperVerdict::Different);
    }
}

#[test]
fn a_bucket_with_more_elements_than_it_has_room_for() {
    // Each look-up would walk through all of them.
    let file_with = |elements: u16, claimed: u16| {
        let (there, claimed) = (usize::from(elements), u64::from(claimed));
        let mut parts = parts();
        *parts.section(b"STRT") = vec![0; 2 * there];
        // Class 1 has no LSDA.
        *parts.section(b"PIEC") = [0, 1, 0, 0].repeat(there);
        *parts.section(b"LSDX") = vec![0; 4 * there.div_ceil(64)];
        *parts.section(b"CSTP") = vec![0; 2 * there];
        for (pages, buckets) in [(b"PPGS", b"PBKT"), (b"CPGS", b"CBKT")] {
            parts.set_numbers(pages, 4, [0, claimed]);
            parts.set_numbers(buckets, 2, [0].into_iter().chain([claimed; 64]));
        }
        parts.build()
    };
    // A look-up visits as many as a bucket can have, or as exist.
    for (elements, claimed, is_good) in [
        (1, 1, true),
        (15, 15, true),
        (15, 16, false),
        (16, 15, true),
        (16, 16, true),
        (16, 17, false),
        (17, 16, true),
        (17, 17, true),
        (1023, 1024, false),
        (1024, 1024, true),
        (1024, 1025, false),
        (1025, 1025, false),
        (2000, 1024, true),
        (2000, 1025, false),
        (65_535, 2000, false),
        (65_535, 65_535, false),
    ] {
        let file = file_with(elements, claimed);
        let compiled = CompiledTable::open(&file).unwrap();
        let what = format!("{claimed} of {elements}");
        let hit = compiled.lookup(Vaddr(0));
        let entry = compiled.entry(Vaddr(0));
        let sites = compiled.call_sites();
        let step = sites.row(Vaddr(0x10), window(&CALLS, 2));
        if is_good {
            assert!(hit.unwrap().is_some(), "{what}");
            assert!(entry.unwrap().is_some(), "{what}");
            assert_eq!(step, Ok(Some(RowRef(0))), "{what}");
        } else {
            assert_eq!(hit, Err(TableCorruption::Pieces), "{what}");
            assert_eq!(entry, Err(TableCorruption::Pieces), "{what}");
            assert_eq!(step, Err(TableCorruption::CallSites), "{what}");
        }
        let (table, code) = (table(), code());
        judge(&TableOracle::new(&table), &code, &file, 0xf00..0x1100);
    }
}

/// Arrays of one repeated byte, in tables of every size.
#[test]
fn monotonous_files() {
    let table = table();
    let original = parts();
    for fill in [0, 1, 0x3f, 0x7f, 0x80, 0xfe, 0xff] {
        for (size, pages) in [(0, 0), (0, 1), (128, 1), (1 << 16, 1), (1 << 16, 7)] {
            let mut parts = original.clone();
            for section in &mut parts.sections {
                if section.tag != *b"KEY " {
                    section.content = vec![fill; size];
                }
            }
            for (of_pages, of_buckets) in [(b"PPGS", b"PBKT"), (b"CPGS", b"CBKT")] {
                *parts.section(of_pages) = vec![fill; 4 * (pages + 1)];
                *parts.section(of_buckets) = vec![fill; 130 * pages];
            }
            let pieces = size / 2;
            *parts.section(b"PIEC") = vec![fill; 4 * pieces];
            *parts.section(b"LSDX") = vec![fill; 4 * pieces.div_ceil(64)];
            for file in [parts.build(), {
                // Every second bucket claims all elements, and every second page.
                let all = |n: usize| {
                    if n.is_multiple_of(2) {
                        0
                    } else {
                        pieces as u64
                    }
                };
                for (of_pages, of_buckets) in [(b"PPGS", b"PBKT"), (b"CPGS", b"CBKT")] {
                    parts.set_numbers(of_pages, 4, (0..=pages).map(all));
                    parts.set_numbers(of_buckets, 2, (0..65 * pages).map(all));
                }
                parts.build()
            }] {
                judge(
                    &TableOracle::new(&table),
                    &code(),
                    &file,
                    (0..0x8_0000).step_by(0x61),
                );
            }
        }
    }
}

/// Bytes that look-ups read, and bytes that they do not: flags, gaps between sections, the digest.
#[test]
fn the_digest_detects_every_flipped_bit() {
    let file = check(&table(), &code());
    assert_eq!(check_digest(&file), Ok(()));
    assert_eq!(check_digest(&[&file[..], b"behind it"].concat()), Ok(()));
    for bit in 0..8 * file.len() {
        let mut changed = file.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(check_digest(&changed).is_err(), "bit {bit}");
    }
}
