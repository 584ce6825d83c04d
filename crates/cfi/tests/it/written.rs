//! `.eh_frame` written of the rows of real files, read back: by this crate, and by gimli.

use gimli::UnwindSection as _;
use unspool_cfi::{EhFrame, Hdr, Section, SectionKind, read_tables, rewrite};
use unspool_ir::diff::{Compare, differences};
use unspool_ir::{Arch, Endian, Table, Vaddr};
use xtask::elf;

use super::files::{FILES, path};

/// The table of a section that was written, and what gimli finds in it: entries, and their rows.
fn read_back(written: &EhFrame, source: &Table, at: Vaddr) -> (Table, usize, usize) {
    let data = written.at(at).unwrap();
    assert_eq!(data.len(), written.len());
    let abi = source.abi();
    let section = Section {
        kind: SectionKind::EhFrame,
        data: &data,
        address: at,
        text_base: None,
        data_base: None,
        abi,
    };
    let reading = read_tables(abi, &[section]);
    assert_eq!(reading.problems, []);

    let endian = match abi.endian {
        Endian::Little => gimli::RunTimeEndian::Little,
        Endian::Big => gimli::RunTimeEndian::Big,
    };
    let mut theirs = gimli::EhFrame::new(&data, endian);
    theirs.set_address_size(abi.arch.spec().word.bytes());
    let bases = gimli::BaseAddresses::default().set_eh_frame(at.0);
    let (mut fdes, mut rows) = (0, 0);
    let mut entries = theirs.entries(&bases);
    let mut context = gimli::UnwindContext::new();
    while let Some(entry) = entries.next().unwrap() {
        let gimli::CieOrFde::Fde(partial) = entry else {
            continue;
        };
        let fde = partial.parse(gimli::EhFrame::cie_from_offset);
        let fde = fde.unwrap();
        fdes += 1;
        let mut table = fde.rows(&theirs, &bases, &mut context).unwrap();
        while table.next_row().unwrap().is_some() {
            rows += 1;
        }
    }
    (reading.table, fdes, rows)
}

#[test]
fn what_is_written_is_what_was_read() {
    let mut written_rows = 0;
    for file in FILES {
        let data = std::fs::read(path(file)).unwrap();
        for unit in elf::units(&data).unwrap() {
            let frames = unit.frames.iter();
            let frames = frames.filter(|frame| frame.kind == SectionKind::EhFrame);
            for frame in frames {
                let source = read_tables(unit.abi, &[unit.section(frame)]).table;
                let written = EhFrame::of(&source).unwrap();
                let (back, fdes, rows) = read_back(&written, &source, frame.address);
                let found = differences(&source, &back, Compare::RowsAndEntries);
                assert_eq!(found.len(), 0, "{file}: {:?}", found.first());
                let covering = source.fdes().iter().filter(|fde| fde.start < fde.end);
                let starts: usize = covering.clone().map(|fde| source.rows(fde).len()).sum();
                assert_eq!((fdes, rows), (covering.count(), starts), "{file}");
                written_rows += rows;

                let hdr_at = Vaddr(frame.address.0.wrapping_sub(0x1_0000));
                let hdr = written.hdr_at(hdr_at, frame.address).unwrap();
                assert_eq!(hdr.len(), written.hdr_len());
                let hdr = Hdr::parse(&hdr, hdr_at, unit.abi).unwrap();
                assert_eq!(hdr.count, fdes as u64);
                let first = source.spans().next();
                let listed = (hdr.count > 0).then(|| hdr.entry(0).unwrap().start);
                assert_eq!(listed, first.map(|span| span.start), "{file}");
            }
        }
    }
    assert!(written_rows > 400_000, "{written_rows}");
}

/// Each entry gets the rows that it has: others read the same rows, ranges and CIEs, where the entry stands now.
#[test]
fn what_is_rewritten_is_what_was_read() {
    let mut rows = 0;
    for file in FILES {
        let data = std::fs::read(path(file)).unwrap();
        for unit in elf::units(&data).unwrap() {
            let frames = unit.frames.iter();
            let frames = frames.filter(|frame| frame.kind == SectionKind::EhFrame);
            for frame in frames {
                let section = unit.section(frame);
                let source = read_tables(unit.abi, &[section]).table;
                let Ok(written) = rewrite(&section, &source, &Table::new(unit.abi)) else {
                    // Code in units of more than a byte: not x86.
                    assert_ne!(unit.abi.arch, Arch::X86_64, "{file}");
                    continue;
                };
                let data = &written.bytes;
                let back = read_tables(unit.abi, &[Section { data, ..section }]);
                assert_eq!(back.problems, [], "{file}");
                assert_eq!(back.table.fdes().len(), source.fdes().len());
                let mut moved = written.kept.iter();
                for (old, new) in source.fdes().iter().zip(back.table.fdes()) {
                    let at = moved.find(|(from, _)| from.start == old.origin);
                    let (from, to) = at.unwrap();
                    assert_eq!(*to, new.origin, "{file}");
                    // Addresses that are relative to where they stand have moved with it.
                    let by = to.wrapping_sub(from.start);
                    let rows_of = |table: &Table, fde| {
                        let rows = table.rows(fde);
                        let rows = rows.map(|row| {
                            let text = format!("{:?}", table.row(row.row));
                            (row.start.0.wrapping_sub(fde.start.0), text)
                        });
                        rows.collect::<Vec<_>>()
                    };
                    assert_eq!(new.end.0 - new.start.0, old.end.0 - old.start.0);
                    assert_eq!(new.start.0.wrapping_sub(old.start.0), by, "{file}");
                    let (before, after) = (rows_of(&source, old), rows_of(&back.table, new));
                    assert_eq!(before, after, "{file}: {}", old.start);
                    rows += after.len();
                }
            }
        }
    }
    assert!(rows > 200_000, "{rows}");
}
