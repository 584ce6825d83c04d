//! Any bytes as a section: nothing panics, the spans are a function of the address, and the
//! reader of one address says what the reader of the section says.
//!
//! The first byte chooses architecture, byte order and format; the second, where the section
//! is cut: what follows is `.eh_frame_hdr`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use unspool_cfi::lookup::HdrTrust;
use unspool_cfi::{CfiSection, Hdr, Lookup, SectionKind, SectionTable, read_table, rewrite};
use unspool_rows::arch::AddressSize;
use unspool_rows::table::Span;
use unspool_rows::{Abi, Arch, Endian, RaState, Register, Row, Table, Vaddr, text};

const ADDRESS: u64 = 0x1000;
const HDR: u64 = 0x800;

/// How many spans are looked up: without a trusted search table each look-up is linear.
const MAX_LOOKUPS: usize = 64;

fuzz_target!(|data: &[u8]| {
    let [choice, cut, rest @ ..] = data else {
        return;
    };
    let abi = abi(*choice);
    let kind = match choice & 0x10 {
        0 => SectionKind::EhFrame,
        _ => SectionKind::DebugFrame,
    };
    let (section, hdr) = rest.split_at(rest.len() - rest.len().min(usize::from(*cut)));
    let section = CfiSection {
        kind,
        data: section,
        address: Vaddr(ADDRESS),
        text_base: (choice & 0x20 != 0).then_some(Vaddr(0x4000)),
        data_base: (choice & 0x40 != 0).then_some(Vaddr(0x5000)),
        abi,
    };
    let reading = read_table(&section);
    let spans: Vec<Span> = reading.table.spans().collect();
    if let Ok(written) = rewrite(&section, &reading.table, &Table::new(abi)) {
        assert!(
            written
                .unchanged
                .iter()
                .all(|(from, _)| from.end <= section.data.len() as u64)
        );
    }
    for span in &spans {
        assert!(span.start < span.end);
    }
    for pair in spans.windows(2) {
        assert!(pair[0].end <= pair[1].start);
    }
    let printed = reading.table.to_string();
    let again = text::parse(&printed).expect("the text form parses back");
    assert_eq!(again.to_string(), printed);

    let hdr = Hdr::parse(hdr, Vaddr(HDR), abi).ok();
    let trust = Lookup::new(section, hdr, HdrTrust::Suspect).check_hdr();
    for trust in [trust, HdrTrust::Suspect] {
        let lookup = Lookup::new(section, hdr, trust);
        for span in spans.iter().take(MAX_LOOKUPS) {
            for at in [span.start.0, span.end.0] {
                for pc in [at.wrapping_sub(1), at] {
                    check(&lookup, &reading, &spans, Vaddr(pc));
                }
            }
        }
    }
    // Trusted by mistake the search table may lead anywhere, but nowhere bad.
    let trusting = Lookup::new(section, hdr, HdrTrust::Complete);
    for pc in [0, 1, ADDRESS, 0x4000, u64::from(u32::MAX), u64::MAX] {
        let _ = trusting.row(Vaddr(pc), &mut Row::new(Register(0)));
    }
    let hdr = hdr_of_all_entries(&reading, abi.endian);
    let hdr = Hdr::parse(&hdr, Vaddr(HDR), abi).expect("a search table");
    let lookup = Lookup::new(section, Some(hdr), HdrTrust::Complete).stop_at_row();
    for span in spans.iter().take(MAX_LOOKUPS) {
        for pc in [span.start.0, span.end.0.wrapping_sub(1)] {
            check_fast_row(&lookup, Vaddr(pc));
        }
    }
});

/// A search table of all entries.
fn hdr_of_all_entries(section_table: &SectionTable, endian: Endian) -> Vec<u8> {
    let fdes = section_table.table.fdes();
    let mut entries: Vec<(u64, u64)> = fdes.iter().map(|fde| (fde.start.0, fde.origin)).collect();
    entries.sort_unstable();
    let numbers = entries
        .iter()
        .flat_map(|(start, origin)| [*start, ADDRESS + origin]);
    let numbers = [ADDRESS, entries.len() as u64].into_iter().chain(numbers);
    // Absolute numbers of 8 bytes.
    let mut bytes = vec![1, 4, 4, 4];
    bytes.extend(numbers.flat_map(|number| match endian {
        Endian::Little => number.to_le_bytes(),
        Endian::Big => number.to_be_bytes(),
    }));
    bytes
}

fn check_fast_row(lookup: &Lookup<'_>, pc: Vaddr) {
    let watched = [Register(6), Register(7)];
    let Some(fast_row) = lookup.fast_row(pc, watched) else {
        return;
    };
    let mut row = Row::new(Register(0));
    let found = lookup.row(pc, &mut row).expect("no error").expect("a row");
    assert_eq!(fast_row.cfa, row.cfa);
    assert_eq!(fast_row.return_address, row.rule(row.return_address));
    assert_eq!(fast_row.watched, watched.map(|register| row.rule(register)));
    assert_eq!((fast_row.start, fast_row.end), (found.start, found.end));
    assert!(!row.signal_frame && row.ra_state == RaState::Plain);
}

fn abi(choice: u8) -> Abi {
    let arch = match choice & 7 {
        0..=2 => Arch::X86_64,
        3 => Arch::I386,
        4 => Arch::Arm,
        5 => Arch::Aarch64,
        6 => Arch::Other {
            machine: 20,
            address_size: AddressSize::W32,
        },
        _ => Arch::Other {
            machine: 243,
            address_size: AddressSize::W64,
        },
    };
    let endian = match choice & 8 {
        0 => Endian::Little,
        _ => Endian::Big,
    };
    Abi { arch, endian }
}

fn check(lookup: &Lookup<'_>, section_table: &SectionTable, spans: &[Span], pc: Vaddr) {
    let after = spans.partition_point(|span| span.start <= pc);
    let expected = spans[..after].last().filter(|span| pc < span.end);
    let mut row = Row::new(Register(0));
    match (lookup.row(pc, &mut row), expected) {
        (Ok(None), None) => {}
        // A trusted search table may lead to an entry that the bulk reader has refused.
        (Err(_), None) => {}
        (Ok(Some(found)), Some(span)) => {
            let fde = section_table.table.fde(span.fde).unwrap();
            assert_eq!(Some(row), section_table.table.row(span.row));
            assert_eq!(found.origin, fde.origin);
            assert_eq!((found.start, found.end), (fde.start, fde.end));
            assert_eq!((found.personality, found.lsda), (fde.personality, fde.lsda));
            assert!(found.row_start <= pc && pc < found.row_end);
        }
        (found, expected) => panic!("{pc}: {found:?}, expected {expected:?}"),
    }
}
