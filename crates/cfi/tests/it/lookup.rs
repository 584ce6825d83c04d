//! The single-address reader compared with the bulk reader.

use unspool_cfi::lookup::HdrTrust;
use unspool_cfi::{
    CfiError, CfiProblem, CfiSection, Hdr, Lookup, RowInfo, SectionKind, SectionTable, read_table,
};
use unspool_rows::table::Span;
use unspool_rows::{Pointer, RaState, Register, Row, Table, Vaddr};
use unspool_testing::sample;
use xtask::elf;

use crate::build::{self, SectionBuilder};
use crate::files::{FILES, path};

/// The bulk reader's result for one address.
fn bulk<'t>(table: &'t Table, spans: &[Span], pc: Vaddr) -> Option<(&'t Table, Span)> {
    let after = spans.partition_point(|span| span.start <= pc);
    let span = spans[..after].last()?;
    (pc < span.end).then_some((table, *span))
}

/// Compares one result. `spans` are of `table`.
pub(crate) fn check_pc(
    lookup: &Lookup<'_>,
    section_table: &SectionTable,
    spans: &[Span],
    pc: Vaddr,
) {
    fast_row_equals_row(&lookup.stop_at_row(), pc);
    let mut row = Row::new(Register(0));
    let found = match lookup.row(pc, &mut row) {
        Ok(found) => found,
        Err(error) => {
            // Only a trusted search table points at a bad entry: the bulk reader has dropped it.
            assert!(
                bulk(&section_table.table, spans, pc).is_none(),
                "{pc}: {error}"
            );
            return;
        }
    };
    let expected = bulk(&section_table.table, spans, pc);
    match (found, expected) {
        (None, None) => {}
        (Some(found), Some((table, span))) => check_found(&found, &row, table, span, pc),
        (found, expected) => panic!("{pc}: {found:?}, expected {expected:?}"),
    }
}

/// A fast row, if there is one, equals the row's rules.
///
/// Returns the number of attempts, and the number of fast rows.
fn fast_row_equals_row(lookup: &Lookup<'_>, pc: Vaddr) -> [u64; 2] {
    // The frame pointers of x86-64 and of AArch64, and the register behind each; then those that
    // exceptions need on x86-64.
    let attempts = [
        watching(lookup, pc, [6, 7]),
        watching(lookup, pc, [29, 30]),
        watching(lookup, pc, [3, 6, 7, 12, 13, 14, 15]),
    ];
    [attempts.len() as u64, attempts.map(u64::from).iter().sum()]
}

/// The same for some registers; returns whether there is a fast row.
fn watching<const N: usize>(lookup: &Lookup<'_>, pc: Vaddr, watched: [u16; N]) -> bool {
    let watched = watched.map(Register);
    if let Some(fast_row) = lookup.fast_row(pc, watched) {
        let mut row = Row::new(Register(0));
        let found = lookup.row(pc, &mut row).unwrap().unwrap();
        assert_eq!(fast_row.cfa, row.cfa, "{pc}");
        assert_eq!(
            fast_row.return_address,
            row.rule(row.return_address),
            "{pc}"
        );
        assert_eq!(
            fast_row.watched,
            watched.map(|register| row.rule(register)),
            "{pc}"
        );
        assert_eq!(
            (fast_row.start, fast_row.end),
            (found.start, found.end),
            "{pc}"
        );
        let lsda = fast_row
            .lsda
            .map(|(Pointer::Direct(at) | Pointer::Indirect(at))| at);
        assert_eq!(
            (fast_row.args_size, fast_row.personality, lsda),
            (row.args_size, found.personality, found.lsda),
            "{pc}"
        );
        assert!(!row.signal_frame && row.ra_state == RaState::Plain, "{pc}");
        return true;
    }
    false
}

fn check_found(row_info: &RowInfo, found_row: &Row<'_>, table: &Table, span: Span, pc: Vaddr) {
    let fde = table.fde(span.fde).unwrap();
    let row = table.row(span.row).unwrap();
    assert_eq!(*found_row, row, "{pc}");
    assert_eq!(row_info.origin, fde.origin, "{pc}");
    assert_eq!((row_info.start, row_info.end), (fde.start, fde.end), "{pc}");
    assert_eq!(row_info.personality, fde.personality, "{pc}");
    assert_eq!(row_info.lsda, fde.lsda, "{pc}");
    assert!(row_info.row_start <= pc && pc < row_info.row_end, "{pc}");
    // A span may join equal neighbouring rows, and another entry may cut it short.
    assert!(
        row_info.row_start < span.end && span.start < row_info.row_end,
        "{pc}"
    );
}

/// Compares at the start and end of every entry and every row, and around them; in a large section at a sample of these. Yields at how
/// many.
pub(crate) fn check_section(
    section: &CfiSection<'_>,
    hdr: Option<Hdr<'_>>,
    trust: HdrTrust,
) -> u64 {
    let reading = read_table(section);
    let spans: Vec<Span> = reading.table.spans().collect();
    let lookup = Lookup::new(*section, hdr, trust);
    let mut pcs: Vec<u64> = Vec::new();
    for fde in reading.table.fdes() {
        let rows = reading.table.rows(fde).map(|row| row.start.0);
        for at in rows.chain([fde.start.0, fde.end.0]) {
            pcs.extend([at.wrapping_sub(1), at, at.wrapping_add(1)]);
        }
    }
    pcs.sort_unstable();
    pcs.dedup();
    // Right or wrong, it points at entries: the results for these must agree.
    let listed = search_table(section, HDR);
    let listed = Hdr::parse(&listed, Vaddr(HDR), section.abi).unwrap();
    let believer = Lookup::new(*section, Some(listed), HdrTrust::Complete).stop_at_row();
    // Those before and behind a start are sampled as often: there are three for each.
    let step = if pcs.len() > 10_000 { 5 } else { 1 };
    let mut checked = 0;
    for pc in sample(&pcs, step) {
        check_pc(&lookup, &reading, &spans, Vaddr(*pc));
        fast_row_equals_row(&believer, Vaddr(*pc));
        checked += 1;
    }
    checked
}

fn hdr<'a>(cfi_file: &'a elf::CfiFile<'_>) -> Option<Hdr<'a>> {
    let (data, address) = cfi_file.hdr.as_ref()?;
    Some(Hdr::parse(data, *address, cfi_file.abi).unwrap())
}

#[test]
pub(crate) fn search_tables_of_linkers_are_complete_and_give_the_bulk_answer() {
    let mut checked = 0;
    for file in FILES {
        let data = std::fs::read(path(file)).unwrap();
        for unit in elf::units(&data).unwrap() {
            let Some(hdr) = hdr(&unit) else { continue };
            let section = unit.section(&unit.sections[0]);
            let trust = Lookup::new(section, Some(hdr), HdrTrust::Suspect).check_hdr();
            assert_eq!(trust, HdrTrust::Complete, "{file}");
            checked += check_section(&section, Some(hdr), trust);
        }
    }
    assert!(checked > 200_000, "{checked} addresses");
}

/// The fast row supports the output of compilers for ordinary functions.
#[test]
fn most_rows_are_fast_rows() {
    let data = std::fs::read(path(FILES[0])).unwrap();
    let units = elf::units(&data).unwrap();
    let hdr = hdr(&units[0]);
    let section = units[0].section(&units[0].sections[0]);
    let reading = read_table(&section);
    let lookup = Lookup::new(section, hdr, HdrTrust::Complete).stop_at_row();
    let pcs = reading.table.spans().map(|span| span.start);
    let counts = pcs.map(|pc| fast_row_equals_row(&lookup, pc));
    let [tried, fast_rows] = counts.fold([0, 0], |sum, one| [sum[0] + one[0], sum[1] + one[1]]);
    assert!(
        tried > 20_000 && fast_rows * 100 > tried * 98,
        "{fast_rows} of {tried}"
    );
}

/// Without a table every entry is inspected: for small sections only.
#[test]
fn a_scan_gives_the_bulk_answer() {
    let mut checked = 0;
    for file in FILES {
        let data = std::fs::read(path(file)).unwrap();
        for unit in elf::units(&data).unwrap() {
            for frame in unit
                .sections
                .iter()
                .filter(|frame| frame.data.len() < 12_000)
            {
                checked += check_section(&unit.section(frame), None, HdrTrust::Suspect);
            }
        }
    }
    assert!(checked > 50_000, "{checked} addresses");
    check_section(&build::ordinary().section(), None, HdrTrust::Suspect);
}

/// A row that a table cannot store is an error of its entry in both readers.
#[test]
fn a_row_4_gib_behind_its_entry_is_refused() {
    const START: u64 = 0x1000;
    for (distance, is_good) in [(0xffff_ffff_u64, true), (0x1_0000_0000, false)] {
        let mut b = SectionBuilder::new(SectionKind::EhFrame, build::X86_64);
        let cie = b.cie(&build::CieSpec::plain());
        b.plain_fde(cie, START - 0x800, 1 << 40, &[]);
        let to = (START + distance).to_le_bytes();
        let instructions = [&[0x01][..], &to, &[0x0e, 16]].concat(); // set_loc; cfa offset 16
        let fde = b.plain_fde(cie, START, 1 << 40, &instructions);
        let section = b.section();
        check_section(&section, None, HdrTrust::Suspect);
        let problems = read_table(&section).problems;
        let expected = CfiProblem {
            section: SectionKind::EhFrame,
            entry: fde,
            error: CfiError::Distant {
                start: Vaddr(START),
                to: Vaddr(START + distance),
            },
        };
        assert_eq!(problems.first(), (!is_good).then_some(&expected));
        // Rows beginning at the entry's end hold nowhere.
        let mut b = SectionBuilder::new(SectionKind::EhFrame, build::X86_64);
        let cie = b.cie(&build::CieSpec::plain());
        b.plain_fde(cie, START, distance, &instructions);
        assert_eq!(b.read().problems, []);
        check_section(&b.section(), None, HdrTrust::Suspect);
    }
}

/// A search table for the entries of the section, in the form that linkers write.
pub(crate) fn search_table(section: &CfiSection<'_>, address: u64) -> Vec<u8> {
    let reading = read_table(section);
    let mut entries: Vec<(u64, u64)> = reading
        .table
        .fdes()
        .iter()
        .filter(|fde| fde.start < fde.end)
        .map(|fde| (fde.start.0, section.address.0 + fde.origin))
        .collect();
    entries.sort_unstable();
    encode_table(&entries, section.address.0, address)
}

fn encode_table(entries: &[(u64, u64)], eh_frame: u64, address: u64) -> Vec<u8> {
    let four = |number: u64| u32::try_from(number & 0xffff_ffff).unwrap().to_le_bytes();
    let mut bytes = vec![1, 0x1b, 0x03, 0x3b];
    bytes.extend(four(eh_frame.wrapping_sub(address + 4)));
    bytes.extend(four(entries.len() as u64));
    for (start, fde) in entries {
        bytes.extend(four(start.wrapping_sub(address)));
        bytes.extend(four(fde.wrapping_sub(address)));
    }
    bytes
}

pub(crate) const HDR: u64 = 0x40_8000;

#[test]
fn a_lying_search_table_is_suspect_and_does_no_harm() {
    let section = build::ordinary();
    let section = section.section();
    let good = search_table(&section, HDR);
    let parse = |bytes: &[u8]| Hdr::parse(bytes, Vaddr(HDR), section.abi).map(drop);
    assert_eq!(parse(&good), Ok(()));

    let mut swapped = good.clone();
    let (a, b) = swapped[12..28].split_at_mut(8);
    a.swap_with_slice(b);
    let mut short = good.clone();
    short.truncate(good.len() - 8);
    let mut repeated = good.clone();
    repeated.copy_within(12..20, 20);
    let mut moved = good.clone();
    moved[12] = moved[12].wrapping_add(1);
    let mut elsewhere = good.clone();
    elsewhere[16] = elsewhere[16].wrapping_add(4);
    let mut empty = good.clone();
    empty[8..12].fill(0);
    let mut huge = good.clone();
    huge[8..12].fill(0xff);
    let omitted = [1, 0x1b, 0xff, 0xff, 0, 0, 0, 0];
    let lies: [&[u8]; 7] = [
        &swapped, &short, &repeated, &moved, &elsewhere, &empty, &omitted,
    ];
    for (n, lie) in lies.iter().enumerate() {
        let hdr = Hdr::parse(lie, Vaddr(HDR), section.abi).unwrap();
        let trust = Lookup::new(section, Some(hdr), HdrTrust::Suspect).check_hdr();
        assert_eq!(trust, HdrTrust::Suspect, "lie {n}");
        check_section(&section, Some(hdr), trust);
        // No such fault can point at a wrong entry that covers the address.
        check_section(&section, Some(hdr), HdrTrust::Unchecked);
        // If trusted by mistake it may give wrong results, but nothing worse.
        let believer = Lookup::new(section, Some(hdr), HdrTrust::Complete);
        let mut row = Row::new(Register(0));
        for pc in (0..0x4000).chain([u64::MAX]) {
            let _ = believer.row(Vaddr(pc), &mut row);
        }
    }
    // The count may have any value: only existing entries are used.
    for bytes in [&good, &huge] {
        let hdr = Hdr::parse(bytes, Vaddr(HDR), section.abi).unwrap();
        let trust = Lookup::new(section, Some(hdr), HdrTrust::Suspect).check_hdr();
        assert_eq!(trust, HdrTrust::Complete);
        check_section(&section, Some(hdr), trust);
    }
}

/// As many entries as the section has, disjoint and readable, but one of them is not an entry of
/// the section: it is inside another's instructions.
#[test]
fn a_search_table_that_lists_something_else_is_suspect() {
    let mut b = build::SectionBuilder::new(unspool_cfi::SectionKind::EhFrame, build::X86_64);
    let cie = b.cie(&build::CieSpec::plain());
    let outer = b.fde(build::Format::Dwarf32, cie, |b| {
        b.fixed(0x1000, 8);
        b.fixed(0x10, 8);
        b.plain_fde(cie, 0x9000, 0x10, &[]);
    });
    let inner = outer + 24;
    let honest = b.plain_fde(cie, 0x2000, 0x10, &[]);
    let section = b.section();
    let at = |offset: u64| section.address.0 + offset;
    for (second, trust) in [
        ((0x2000, at(honest)), HdrTrust::Complete),
        ((0x9000, at(inner)), HdrTrust::Suspect),
    ] {
        let table = encode_table(&[(0x1000, at(outer)), second], section.address.0, HDR);
        let hdr = Hdr::parse(&table, Vaddr(HDR), section.abi).unwrap();
        let lookup = Lookup::new(section, Some(hdr), HdrTrust::Suspect);
        assert_eq!(lookup.check_hdr(), trust, "{second:x?}");
    }
}

#[test]
fn a_search_table_that_cannot_be_read_says_why() {
    let parse = |bytes: &[u8]| Hdr::parse(bytes, Vaddr(HDR), build::X86_64).map(|hdr| hdr.count);
    assert_eq!(
        parse(&[2, 0x1b, 3, 0x3b, 0, 0, 0, 0]),
        Err(CfiError::Version(2))
    );
    assert_eq!(
        parse(&[1, 0x1d, 3, 0x3b, 0, 0, 0, 0]),
        Err(CfiError::Encoding(0x1d))
    );
    assert!(matches!(
        parse(&[1, 0x1b, 3]),
        Err(CfiError::Truncated { .. })
    ));
    assert!(matches!(
        parse(&[1, 0x1b, 3, 0x3b, 0]),
        Err(CfiError::Truncated { .. })
    ));
    // Entries of variable size cannot be searched.
    assert_eq!(
        parse(&[1, 0x1b, 3, 0x39, 0, 0, 0, 0, 9, 0, 0, 0, 1, 2]),
        Ok(0)
    );
    // A count past the end is cut to the existing entries.
    let mut huge = vec![1, 0x1b, 4, 0x3b, 0, 0, 0, 0];
    huge.extend([0xff; 8]);
    huge.extend([0; 20]);
    assert_eq!(parse(&huge), Ok(2));
}

#[test]
fn a_search_table_has_no_entry_past_its_count() {
    // one entry, and room for another
    let mut bytes = vec![1, 0x1b, 3, 0x3b, 0, 0, 0, 0, 1, 0, 0, 0];
    bytes.extend([0; 16]);
    let entry = |bytes: &[u8], index| {
        let hdr = Hdr::parse(bytes, Vaddr(HDR), build::X86_64).unwrap();
        hdr.entry(index).map(|entry| entry.start)
    };
    assert_eq!(entry(&bytes, 0), Ok(Vaddr(HDR)));
    for index in [1, 2, u64::MAX / 8, u64::MAX] {
        let past = entry(&bytes, index);
        assert!(matches!(past, Err(CfiError::Truncated { .. })), "{index}");
    }
    let none = entry(&[1, 0x1b, 0xff, 0xff, 0, 0, 0, 0], 0);
    assert!(matches!(
        none,
        Err(CfiError::Truncated { .. } | CfiError::Encoding(_))
    ));
}
