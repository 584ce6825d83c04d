//! Damaged sections: no panic, no hang, and undamaged entries are still read.

use unspool_cfi::lookup::HdrTrust;
use unspool_cfi::{CfiError, Lookup, SectionKind, SectionTable, read_table};
use unspool_rows::table::Span;
use unspool_rows::{Table, Vaddr};

use crate::build::{self, CieSpec, Format, SectionBuilder, X86_64};
use crate::lookup::check_pc;

/// Reads `data` in both ways; returns the bulk reader's result.
fn read(data: &[u8]) -> SectionTable {
    let section = build::section(SectionKind::EhFrame, X86_64, data);
    let reading = read_table(&section);
    let spans: Vec<Span> = reading.table.spans().collect();
    assert!(spans.is_sorted_by(|a, b| a.start < a.end && a.end <= b.start));
    let lookup = Lookup::new(section, None, HdrTrust::Suspect);
    let bounds = spans.iter().flat_map(|span| [span.start.0, span.end.0]);
    for pc in bounds.chain([0, 0x1000, 0x2000, u64::MAX]) {
        check_pc(&lookup, &reading, &spans, Vaddr(pc.wrapping_sub(1)));
        check_pc(&lookup, &reading, &spans, Vaddr(pc));
    }
    reading
}

/// The entries of a table, each as text with its offset.
fn entries(table: &Table) -> Vec<(u64, String)> {
    let text = table.to_string();
    let entries = text.split("\nfn ").skip(1).map(str::trim_end);
    let origins = table.fdes().iter().map(|fde| fde.origin);
    origins.zip(entries.map(str::to_owned)).collect()
}

#[test]
fn a_truncated_section_keeps_what_is_before_the_cut() {
    let whole = build::ordinary();
    let all = entries(&whole.read().table);
    let ends: Vec<u64> = whole
        .section()
        .entries()
        .map(|(offset, entry)| {
            assert!(entry.is_ok());
            let at = usize::try_from(offset).unwrap();
            let length = u32::from_le_bytes(whole.bytes[at..at + 4].try_into().unwrap());
            offset + 4 + u64::from(length)
        })
        .collect();
    for cut in 0..whole.bytes.len() {
        let reading = read(&whole.bytes[..cut]);
        let complete = ends.iter().filter(|end| **end <= cut as u64).max();
        let kept = all.iter().filter(|(origin, _)| Some(origin) < complete);
        assert_eq!(
            entries(&reading.table),
            kept.cloned().collect::<Vec<_>>(),
            "cut at {cut}"
        );
        let is_at_a_bound = cut == 0 || ends.contains(&(cut as u64));
        assert!(
            is_at_a_bound
                || !reading.problems.is_empty()
                || cut as u64 > ends[ends.len() - 1]
                || whole.bytes[..cut].ends_with(&[0; 4]),
            "cut at {cut}"
        );
    }
}

/// A change of any single bit. Entries before it that have another CIE are unchanged. So are
/// entries behind it, unless the bit is in a length.
#[test]
fn a_flipped_bit_damages_only_its_entry() {
    let whole = build::ordinary();
    let all = entries(&whole.read().table);
    let starts: Vec<u64> = whole
        .section()
        .entries()
        .map(|(offset, _)| offset)
        .collect();
    let cies: Vec<(u64, u64)> = whole
        .section()
        .entries()
        .map(|(offset, entry)| (offset, entry.unwrap().cie.unwrap_or(offset)))
        .collect();
    for at in 0..whole.bytes.len() {
        let here = *starts
            .iter()
            .rev()
            .find(|start| **start <= at as u64)
            .unwrap();
        let is_length = at as u64 - here < 4;
        for bit in 0..8 {
            let mut damaged = whole.bytes.clone();
            damaged[at] ^= 1 << bit;
            let reading = read(&damaged);
            let now = entries(&reading.table);
            for (origin, text) in &all {
                let cie = cies.iter().find(|(offset, _)| offset == origin).unwrap().1;
                let is_touched = *origin == here || cie == here;
                // The bytes of a terminator become a length.
                let is_behind = *origin > here;
                let may_be_lost = is_touched || (is_behind && (is_length || is_gap(&whole, at)));
                if !may_be_lost {
                    let found = now.iter().find(|(offset, _)| offset == origin);
                    let found = found.map(|(_, text)| text);
                    assert_eq!(found, Some(text), "bit {bit} of byte {at:#x}");
                }
            }
        }
    }
}

/// Whether the byte belongs to a terminator.
fn is_gap(whole: &SectionBuilder, at: usize) -> bool {
    let mut entries = whole
        .section()
        .entries()
        .map(|(offset, _)| offset)
        .collect::<Vec<_>>();
    entries.push(whole.here());
    entries.windows(2).any(|pair| {
        let start = usize::try_from(pair[0]).unwrap();
        let length = u32::from_le_bytes(whole.bytes[start..start + 4].try_into().unwrap());
        let end = start + 4 + usize::try_from(length).unwrap();
        (end..usize::try_from(pair[1]).unwrap()).contains(&at)
    })
}

#[test]
fn random_bytes_in_place_of_others_do_no_harm() {
    let whole = build::ordinary();
    let mut state = 1_u64;
    let mut random = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(state >> 33).unwrap()
    };
    for _ in 0..20_000 {
        let mut damaged = whole.bytes.clone();
        for _ in 0..1 + random() % 6 {
            let at = random() % damaged.len();
            damaged[at] = random().to_le_bytes()[0];
        }
        read(&damaged);
    }
}

/// A section with a good CIE and a good FDE, and `bytes` between them.
fn between(bytes: &[u8]) -> SectionTable {
    let mut b = SectionBuilder::new(SectionKind::EhFrame, X86_64);
    let cie = b.cie(&CieSpec::plain());
    b.plain_fde(cie, 0x1000, 0x10, &[]);
    b.bytes.extend(bytes);
    b.plain_fde(cie, 0x2000, 0x10, &[]);
    read(&b.bytes)
}

fn errors(table: &SectionTable) -> Vec<CfiError> {
    table.problems.iter().map(|problem| problem.error).collect()
}

#[test]
fn lengths_that_lie_are_reported() {
    let reading = between(&[0xf0, 0xff, 0xff, 0xff]);
    assert_eq!(errors(&reading), [CfiError::ReservedLength(0xffff_fff0)]);
    let reading = between(&[0xff, 0xff, 0, 0]);
    assert!(matches!(
        errors(&reading)[..],
        [CfiError::Length { length: 0xffff, .. }]
    ));
    for length in [u64::MAX, 1 << 63, 1 << 32, u64::MAX - 20] {
        let mut bytes = vec![0xff; 4];
        bytes.extend(length.to_le_bytes());
        let reading = between(&bytes);
        assert!(
            matches!(errors(&reading)[..], [CfiError::Length { .. }]),
            "{length:#x}"
        );
        assert_eq!(reading.table.fdes().len(), 1);
    }
    // A length too short for the entry: only that entry is lost.
    for length in 1..8_u8 {
        let mut bytes = vec![length, 0, 0, 0];
        bytes.resize(4 + usize::from(length), 1);
        let reading = between(&bytes);
        assert_eq!(reading.problems.len(), 1, "{length}");
        assert_eq!(reading.table.fdes().len(), 2, "{length}");
    }
}

#[test]
fn cie_pointers_that_lead_nowhere_are_reported() {
    let mut b = SectionBuilder::new(SectionKind::EhFrame, X86_64);
    let cie = b.cie(&CieSpec::plain());
    let first = b.plain_fde(cie, 0x1000, 0x10, &[]);
    // to itself, to another FDE, in front of the section, to each other: forwards, backwards
    let own = b.here();
    b.plain_fde(own, 0x3000, 0x10, &[]);
    b.plain_fde(first, 0x4000, 0x10, &[]);
    b.plain_fde(0_u64.wrapping_sub(0x100), 0x5000, 0x10, &[]);
    let pair = b.here();
    b.plain_fde(pair + 24, 0x6000, 0x10, &[]);
    b.plain_fde(pair, 0x7000, 0x10, &[]);
    b.plain_fde(cie, 0x2000, 0x10, &[]);
    let reading = read(&b.bytes);
    let expected = [
        CfiError::NoCie(own),
        CfiError::NoCie(first),
        CfiError::CieInFront(0x100),
        CfiError::NoCie(pair + 24),
        CfiError::NoCie(pair),
    ];
    assert_eq!(errors(&reading), expected);
    let starts: Vec<u64> = reading.table.fdes().iter().map(|fde| fde.start.0).collect();
    assert_eq!(starts, [0x1000, 0x2000]);
}

#[test]
fn cie_pointers_of_debug_frame_are_checked_too() {
    let mut b = SectionBuilder::new(SectionKind::DebugFrame, X86_64);
    let cie = b.cie(&CieSpec::plain());
    let pointers = [b.here(), 0x1000, 0xffff_fffe];
    for pointer in pointers {
        b.plain_fde(pointer, 0x3000, 0x10, &[]);
    }
    b.plain_fde(cie, 0x2000, 0x10, &[]);
    let reading = b.read();
    assert_eq!(errors(&reading), pointers.map(CfiError::NoCie));
    assert_eq!(reading.table.fdes().len(), 1);
}

#[test]
fn ranges_that_wrap_are_refused() {
    let mut b = SectionBuilder::new(SectionKind::EhFrame, X86_64);
    let cie = b.cie(&CieSpec::plain());
    for (start, length) in [
        (u64::MAX, 1),
        (0x1000, u64::MAX),
        (u64::MAX - 0x10, 0x20),
        (1, u64::MAX),
    ] {
        b.plain_fde(cie, start, length, &[]);
    }
    b.plain_fde(cie, u64::MAX - 0x10, 0x10, &[]);
    let reading = read(&b.bytes);
    assert_eq!(reading.problems.len(), 4);
    assert!(
        errors(&reading)
            .iter()
            .all(|error| matches!(error, CfiError::Range { .. }))
    );
    assert_eq!(reading.table.fdes()[0].end, Vaddr(u64::MAX));
}

#[test]
fn advances_do_not_wrap() {
    let mut b = SectionBuilder::new(SectionKind::EhFrame, X86_64);
    let cie = b.cie(&CieSpec {
        code_alignment: u64::MAX,
        ..CieSpec::plain()
    });
    b.plain_fde(cie, 0x1000, 0x10, &[0x42, 0x0e, 16]); // 2 · (2^64 - 1)
    b.plain_fde(cie, 0x2000, 0x10, &[0x41, 0x0e, 16]); // 0x2000 + 2^64 - 1
    let reading = read(&b.bytes);
    assert!(
        errors(&reading)
            .iter()
            .all(|error| matches!(error, CfiError::Scale { .. }))
    );
    assert_eq!(reading.problems.len(), 2);
}

#[test]
fn numbers_may_be_padded_but_not_too_large() {
    let mut b = SectionBuilder::new(SectionKind::EhFrame, X86_64);
    let cie = b.cie(&CieSpec::plain());
    let mut padded = vec![0x0e, 0x90];
    padded.extend([0x80; 20]);
    padded.push(0);
    b.plain_fde(cie, 0x1000, 0x10, &padded);
    let mut large = vec![0x0e];
    large.extend([0xff; 10]);
    large.push(1);
    b.plain_fde(cie, 0x2000, 0x10, &large);
    let endless = [0x0e, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80];
    b.plain_fde(cie, 0x3000, 0x10, &endless);
    let reading = read(&b.bytes);
    let text = reading.table.to_string();
    assert!(text.ends_with("0x1000  cfa=rsp+16  ra=[cfa-8]\n"), "{text}");
    assert!(
        errors(&reading)
            .iter()
            .all(|error| matches!(error, CfiError::Number { .. }))
    );
    assert_eq!(reading.problems.len(), 2);
}

#[test]
fn augmentation_data_that_lies_about_its_length_is_an_error() {
    for length in [0x7f_u8, 0xff] {
        let mut b = SectionBuilder::new(SectionKind::EhFrame, X86_64);
        let good = b.cie(&CieSpec::plain());
        let cie = b.cie(&CieSpec {
            augmentation: "zR",
            data: vec![0x03],
            ..CieSpec::plain()
        });
        b.fde(Format::Dwarf32, cie, |b| {
            b.number(0x03, 0x1000);
            b.number(0x03, 0x10);
            b.bytes.push(length);
        });
        b.plain_fde(good, 0x2000, 0x10, &[]);
        let reading = read(&b.bytes);
        assert_eq!(reading.problems.len(), 1);
        assert_eq!(reading.table.fdes().len(), 1);
    }
    // letters that need more data than there is
    let mut b = SectionBuilder::new(SectionKind::EhFrame, X86_64);
    let cie = b.cie(&CieSpec {
        augmentation: "zRRRR",
        data: vec![0x03],
        ..CieSpec::plain()
    });
    b.plain_fde(cie, 0x1000, 0x10, &[]);
    assert!(!read(&b.bytes).problems.is_empty());
}

#[test]
fn a_string_without_end_is_an_error() {
    let mut b = SectionBuilder::new(SectionKind::EhFrame, X86_64);
    b.entry(Format::Dwarf32, |b| {
        b.fixed(0, 4);
        b.bytes.push(1);
        b.bytes.extend([b'z'; 23]);
    });
    b.plain_fde(0, 0x1000, 0x10, &[]);
    assert!(!read(&b.bytes).problems.is_empty());
}

/// The header of a CIE is read for each of its FDEs: no field in it may be long.
#[test]
fn a_header_of_any_length_is_an_error() {
    let read_with = |letters: usize, padding: usize| {
        let mut b = SectionBuilder::new(SectionKind::EhFrame, X86_64);
        let cie = b.entry(Format::Dwarf32, |b| {
            b.fixed(0, 4);
            b.bytes.extend([1, b'z']);
            b.bytes.extend(std::iter::repeat_n(b'S', letters - 1));
            b.bytes.push(0);
            b.bytes.push(0x81); // code alignment 1
            b.bytes.extend(std::iter::repeat_n(0x80, padding));
            b.bytes.extend([0, 0x78, 16, 0, 0x0c, 7, 8, 0x90, 1]);
        });
        b.fde(Format::Dwarf32, cie, |b| {
            b.fixed(0x1000, 8);
            b.fixed(0x10, 8);
            b.bytes.push(0);
        });
        let reading = read(&b.bytes);
        assert_eq!(reading.table.fdes().len() + reading.problems.len() / 2, 1);
        reading.problems.first().map(|problem| problem.error)
    };
    assert_eq!(read_with(32, 30), None);
    let too_long = Some(CfiError::TooLong {
        offset: 9,
        most: 32,
    });
    assert_eq!(read_with(33, 0), too_long);
    assert_eq!(read_with(1_000_000, 0), too_long);
    let number = Some(CfiError::Number { offset: 11 });
    assert_eq!(read_with(1, 31), number);
    assert_eq!(read_with(1, 1_000_000), number);
}
