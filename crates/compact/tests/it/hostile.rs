//! Files made to mislead: refused by `open`, or looked up in without harm and seen by `compare`.

use unspool_compact::call::window;
use unspool_compact::{Code, Compiled, Corrupt, Key, OpenError, encode};
use unspool_ir::{Table, Vaddr, text};

use crate::oracle::{Source, Verdict, check, encode_with, judge};
use crate::parts::{Parts, Section};

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

fn code() -> Code<'static> {
    Code {
        ranges: vec![(Vaddr(0x1000), &CALLS), (Vaddr(0x1020), &CALLS)],
    }
}

fn parts() -> Parts {
    Parts::of(&check(&table(), &code()))
}

fn judge_parts(parts: &Parts) -> Verdict {
    let table = table();
    judge(&Source::new(&table), &code(), &parts.build(), 0xf00..0x1100)
}

fn open_error(file: &[u8]) -> OpenError {
    Compiled::open(file).unwrap_err()
}

#[test]
fn versions_and_magic() {
    let file = parts().build();
    for (at, new) in [(0, b'U'), (7, 1)] {
        let mut changed = file.clone();
        changed[at] = new;
        assert_eq!(open_error(&changed), OpenError::Magic);
    }
    for version in [0, 2, 0x100, 0xffff_u16] {
        let mut changed = file.clone();
        changed[8..10].copy_from_slice(&version.to_le_bytes());
        assert_eq!(open_error(&changed), OpenError::Version(version));
        // Whatever follows: a later version may have another header.
        assert_eq!(open_error(&changed[..32]), OpenError::Version(version));
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
            let expected = OpenError::Header {
                offset: at as u64,
                value: u64::from(*value),
            };
            assert_eq!(open_error(&changed), expected);
        }
    }
    let mut changed = file.clone();
    changed[16] = 1;
    let expected = OpenError::Header {
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
        let expected = OpenError::Header {
            offset: 28,
            value: u64::from(count),
        };
        assert_eq!(open_error(&changed), expected);
    }
    // A directory that runs past the end.
    let mut short = file[..32].to_vec();
    short[24..28].copy_from_slice(&32_u32.to_le_bytes());
    let expected = OpenError::Truncated {
        len: 32,
        expected: 48,
    };
    assert_eq!(open_error(&short), expected);
    // A table longer than its bytes.
    let mut changed = file.clone();
    changed[24..28].copy_from_slice(&u32::MAX.to_le_bytes());
    let expected = OpenError::Truncated {
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
            let at = 32 + 16 * n;
            changed[at + 8..at + 12].copy_from_slice(&offset.to_le_bytes());
            changed[at + 12..at + 16].copy_from_slice(&length.to_le_bytes());
            let tag = parts().sections[n].tag;
            assert_eq!(open_error(&changed), OpenError::Section(tag));
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
        let at = 32 + 16 * n;
        for other in 0..count {
            let from = 32 + 16 * other;
            let mut changed = file.clone();
            changed.copy_within(from + 8..from + 16, at + 8);
            judge(&Source::new(&table), &code(), &changed, 0xf00..0x1100);
            changed.copy_from_slice(&file);
            changed.copy_within(from + 8..from + 12, at + 8);
            judge(&Source::new(&table), &code(), &changed, 0xf00..0x1100);
        }
        for start in [0_u32, 1, 32, 33] {
            let mut changed = file.clone();
            changed[at + 8..at + 12].copy_from_slice(&start.to_le_bytes());
            judge(&Source::new(&table), &code(), &changed, 0xf00..0x1100);
        }
    }
}

#[test]
fn unknown_sections() {
    let mut parts = parts();
    parts.sections.insert(
        0,
        Section {
            tag: *b"NEW ",
            flags: 0,
            content: vec![1, 2, 3],
        },
    );
    assert_eq!(judge_parts(&parts), Verdict::Equal);
    // Other flags say nothing to this version.
    parts.sections[0].flags = 2;
    assert_eq!(judge_parts(&parts), Verdict::Equal);
    for flags in [1, 3] {
        parts.sections[0].flags = flags;
        assert_eq!(open_error(&parts.build()), OpenError::Section(*b"NEW "));
    }
    // 64 sections are allowed.
    parts.sections[0].flags = 0;
    let unknown = parts.sections[0].clone();
    parts.sections.resize(64, unknown.clone());
    assert_eq!(judge_parts(&parts), Verdict::Equal);
    parts.sections.push(unknown);
    assert_eq!(judge_parts(&parts), Verdict::Refused);
}

#[test]
fn the_order_of_sections_and_bytes_between_them_mean_nothing() {
    let mut parts = parts();
    parts.sections.reverse();
    assert_eq!(judge_parts(&parts), Verdict::Equal);
    let padding = Section {
        tag: *b"PAD ",
        flags: 0,
        content: vec![0xff; 7],
    };
    for n in (0..parts.sections.len()).rev() {
        parts.sections.insert(n, padding.clone());
    }
    assert_eq!(judge_parts(&parts), Verdict::Equal);
}

#[test]
fn a_tag_twice_is_refused() {
    for n in 0..parts().sections.len() {
        let mut parts = parts();
        let again = parts.sections[n].clone();
        parts.sections.push(again);
        let tag = parts.sections[n].tag;
        assert_eq!(open_error(&parts.build()), OpenError::Section(tag));
        // Also where one of the two is empty.
        parts.sections[n].content.clear();
        assert_eq!(open_error(&parts.build()), OpenError::Section(tag));
    }
}

#[test]
fn keys() {
    for bad in [&[][..], &[0, 1, 2], &[3, 1]] {
        let mut parts = parts();
        *parts.section(b"KEY ") = bad.to_vec();
        assert_eq!(open_error(&parts.build()), OpenError::Section(*b"KEY "));
    }
    let table = table();
    for key in [
        Key::BuildId(&[]),
        Key::BuildId(&[7; 64]),
        Key::Content(&[9; 20]),
    ] {
        let bytes = encode(&table, key, &Code::default(), &[]).unwrap().bytes;
        assert_eq!(Compiled::open(&bytes).unwrap().key(), key);
    }
}

#[test]
fn arrays_of_unequal_length() {
    for (tag, size) in [(b"STRT", 2), (b"PIEC", 4), (b"LSDX", 4)] {
        let mut parts = parts();
        let length = parts.section(tag).len();
        parts.section(tag).truncate(length - size);
        assert!(matches!(open_error(&parts.build()), OpenError::Section(_)));
    }
}

#[test]
fn unsorted_starts_and_pages() {
    let mut parts = parts();
    parts.set(b"STRT", 2, 0, 0x1020);
    parts.set(b"STRT", 2, 1, 0x1000);
    assert_eq!(judge_parts(&parts), Verdict::Different);
    parts.set(b"STRT", 2, 0, 0x1000);
    assert_eq!(judge_parts(&parts), Verdict::Different);
    for (index, value) in [(1, 1), (2, 1), (2, 3), (16, 3), (2, 1 << 31)] {
        let mut parts = self::parts();
        parts.set(b"PBKT", 4, index, value);
        assert_eq!(judge_parts(&parts), Verdict::Different, "{index} {value}");
    }
}

#[test]
fn buckets_that_do_not_ascend() {
    // One row over a whole page: its buckets but the first are never at the end of anything.
    let text = "arch x86-64 little\nfn 0x10000..0x1ffff\n  0x10000 cfa=rsp+8\n";
    let table = text::parse(text).unwrap();
    let source = Source::new(&table);
    let original = Parts::of(&check(&table, &Code::default()));
    let verdict = |parts: &Parts| {
        let addresses = (0x1_0000..0x3_0000).step_by(0x100);
        judge(&source, &Code::default(), &parts.build(), addresses)
    };
    for (bucket, count) in [(5, 0), (5, 2), (5, 0xffff_ffff), (14, 0), (0, 1), (15, 2)] {
        let mut parts = original.clone();
        parts.set(b"PBKT", 4, bucket, count);
        assert_eq!(verdict(&parts), Verdict::Different, "{bucket} {count}");
    }
    // A last page that is not whole.
    for more in [1, 15, 17] {
        let mut parts = original.clone();
        parts
            .section(b"PBKT")
            .extend_from_slice(&[1, 0, 0, 0].repeat(more));
        assert_eq!(verdict(&parts), Verdict::Different);
    }
    let mut parts = original.clone();
    parts
        .section(b"PBKT")
        .extend_from_slice(&[1, 0, 0, 0].repeat(16));
    assert_eq!(verdict(&parts), Verdict::Equal);
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
    let mut parts = Parts::of(&encode_with(&table, &Code::default()).unwrap().bytes);
    parts
        .section(b"PBKT")
        .extend_from_slice(&[3, 0, 0, 0].repeat(16));
    parts.section(b"STRT").extend_from_slice(&[0x10, 0]);
    let record = parts.section(b"PIEC")[4..].to_vec();
    parts.section(b"PIEC").extend_from_slice(&record);
    parts.set(b"ODDS", 4, 1, 2);
    assert_eq!(open_error(&parts.build()), OpenError::Section(*b"PBKT"));

    // More pages than a table may have.
    let mut parts = self::parts();
    let most = 4 * (16 * 65_536 + 1);
    parts.section(b"PBKT").resize(most + 4 * 16, 2);
    assert_eq!(open_error(&parts.build()), OpenError::Section(*b"PBKT"));
    parts.section(b"PBKT").truncate(most);
    assert!(Compiled::open(&parts.build()).is_ok());
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
    for count in parts.section(b"PBKT").chunks_mut(4).skip(2) {
        count[0] = 3;
    }
    let file = parts.build();
    let compiled = Compiled::open(&file).unwrap();
    let found = |pc| compiled.lookup(Vaddr(pc)).unwrap().is_some();
    let covered = [
        0x100f, 0x1010, 0x1013, 0x1014, 0x1017, 0x1018, 0x101f, 0x1020,
    ]
    .map(found);
    assert_eq!(
        covered,
        [true, false, false, true, true, false, false, true]
    );
    assert_eq!(judge_parts(&parts), Verdict::Different);
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
    let original = Parts::of(&check(&table, &Code::default()));
    // The records are of pieces 0, 2, and 3 to 4: another first piece, or fewer pieces.
    for (field, value, pc) in [(0, 1, 0x1000), (14, 4, 0xfff0), (15, 1, 0x10000)] {
        let mut parts = original.clone();
        let entry = |parts: &Parts| {
            let file = parts.build();
            let compiled = Compiled::open(&file).unwrap();
            compiled.entry(Vaddr(pc))
        };
        assert!(entry(&parts).unwrap().is_some());
        parts.set(b"ODDS", 4, field, value);
        assert_eq!(entry(&parts), Err(Corrupt), "{field}");
    }
}

#[test]
fn slot_511_answers_nothing() {
    let mut parts = parts();
    let ask = 511_u16.to_le_bytes();
    for step in parts.section(b"CSTP").chunks_mut(2) {
        step[0] |= ask[0];
        step[1] |= ask[1];
    }
    parts.section(b"CSLT").resize(2 * 511, 0);
    let file = parts.build();
    let compiled = Compiled::open(&file).unwrap();
    let answer = compiled.call_site(&compiled.call_sites(), Vaddr(0x1002), window(&CALLS, 2));
    assert_eq!(answer, Ok(None));
    parts.section(b"CSLT").resize(2 * 512, 0);
    assert_eq!(open_error(&parts.build()), OpenError::Section(*b"CSLT"));
}

#[test]
fn rows_that_are_no_rows() {
    for bad in [&[0xff; 16][..], &[0; 1], &[0x30, 0x10]] {
        let mut parts = parts();
        let length = parts.section(b"ROWS").len();
        *parts.section(b"ROWS") = bad.iter().copied().cycle().take(length).collect();
        assert_eq!(judge_parts(&parts), Verdict::Different);
    }
}

#[test]
fn a_bucket_with_more_elements_than_it_has_room_for() {
    // Each look-up would walk through all of them.
    let mut parts = parts();
    let pieces = 4097_u32;
    *parts.section(b"STRT") = vec![0; 2 * pieces as usize];
    *parts.section(b"PIEC") = vec![0; 4 * pieces as usize];
    *parts.section(b"LSDX") = vec![0; 4 * pieces.div_ceil(64) as usize];
    *parts.section(b"PBKT") = [[0; 4], pieces.to_le_bytes()].concat();
    *parts.section(b"CBKT") = [[0; 4], pieces.to_le_bytes()].concat();
    *parts.section(b"CSTP") = vec![0; 2 * pieces as usize];
    let file = parts.build();
    let compiled = Compiled::open(&file).unwrap();
    assert_eq!(compiled.lookup(Vaddr(0)), Err(Corrupt));
    assert_eq!(compiled.entry(Vaddr(0)), Err(Corrupt));
    let sites = compiled.call_sites();
    let answer = compiled.call_site(&sites, Vaddr(0x10), window(&CALLS, 2));
    assert_eq!(answer, Err(Corrupt));
    // As many as it can have are walked through.
    parts.set(b"CBKT", 4, 1, 4096);
    let file = parts.build();
    let compiled = Compiled::open(&file).unwrap();
    let answer = compiled.call_site(&sites, Vaddr(0x10), window(&CALLS, 2));
    assert!(answer.unwrap().is_some());
}

/// All bytes of an array the same, in tables of every size.
#[test]
fn monotonous_files() {
    let table = table();
    let original = parts();
    for fill in [0, 1, 0x3f, 0x7f, 0x80, 0xfe, 0xff] {
        for size in [0, 128, 1 << 16] {
            let mut parts = original.clone();
            for section in &mut parts.sections {
                if section.tag != *b"KEY " {
                    section.content = vec![fill; size];
                }
            }
            parts.section(b"CSLT").truncate(2 * 511);
            let pieces = size / 2;
            *parts.section(b"PIEC") = vec![fill; 4 * pieces];
            *parts.section(b"LSDX") = vec![fill; 4 * pieces.div_ceil(64)];
            for file in [parts.build(), {
                // Every second bucket claims all elements.
                for tag in [b"PBKT", b"CBKT"] {
                    let all = [[0; 4], u32::try_from(pieces).unwrap().to_le_bytes()].concat();
                    *parts.section(tag) = all.repeat(8);
                }
                parts.build()
            }] {
                judge(
                    &Source::new(&table),
                    &code(),
                    &file,
                    (0..0x1_0000).step_by(0x61),
                );
            }
        }
    }
}
