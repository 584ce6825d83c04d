//! `.eh_frame` written from the rows of real files, and read back by this crate and by gimli.

use std::collections::BTreeMap;

use gimli::UnwindSection as _;
use unspool_cfi::{CfiSection, EhFrame, Hdr, SectionKind, SizeOptimization, read_tables, rewrite};
use unspool_rows::diff::{DiffScope, differences};
use unspool_rows::{Arch, Endian, Table, Vaddr};
use xtask::elf;

use super::files::{FILES, path};

/// Whose instructions gimli reads.
fn vendor(arch: Arch) -> gimli::Vendor {
    match arch {
        Arch::Aarch64 => gimli::Vendor::AArch64,
        _ => gimli::Vendor::Default,
    }
}

/// The table of a section that was written, and what gimli finds in it: entries, and their rows.
fn read_back(written: &EhFrame, source: &Table, at: Vaddr) -> (Table, usize, usize) {
    let data = written.bytes_at(at).unwrap();
    assert_eq!(data.len(), written.len());
    let abi = source.abi();
    let section = CfiSection {
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
    theirs.set_address_size(abi.arch.spec().address_size.bytes());
    theirs.set_vendor(vendor(abi.arch));
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
fn written_entries_equal_their_input() {
    let mut written_rows = 0;
    for file in FILES {
        let data = std::fs::read(path(file)).unwrap();
        for unit in elf::units(&data).unwrap() {
            let frames = unit.sections.iter();
            let frames = frames.filter(|frame| frame.kind == SectionKind::EhFrame);
            for frame in frames {
                let source = read_tables(unit.abi, &[unit.section(frame)]).table;
                let written = EhFrame::from_table(&source).unwrap();
                let (back, fdes, rows) = read_back(&written, &source, frame.address);
                let found = differences(&source, &back, DiffScope::RowsAndEntries);
                assert_eq!(found.len(), 0, "{file}: {:?}", found.first());
                let covering = source.fdes().iter().filter(|fde| fde.start < fde.end);
                // Rows that repeat the one before are dropped.
                let ids = |fde| source.rows(fde).map(|start| start.row);
                let starts: usize = covering
                    .clone()
                    .map(|fde| ids(fde).collect::<Vec<_>>().chunk_by(|a, b| a == b).count())
                    .sum();
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

/// The rows of a section by gimli, by their start, without repeated ones.
fn rows_of_gimli(data: &[u8], at: Vaddr, arch: Arch) -> BTreeMap<(u64, u64), String> {
    let mut section = gimli::EhFrame::new(data, gimli::LittleEndian);
    section.set_address_size(arch.spec().address_size.bytes());
    section.set_vendor(vendor(arch));
    let bases = gimli::BaseAddresses::default().set_eh_frame(at.0);
    let mut context = gimli::UnwindContext::new();
    let bytes =
        |e: gimli::UnwindExpression<usize>| format!("{:?}", e.get(&section).unwrap().0.slice());
    let mut found = BTreeMap::new();
    let mut entries = section.entries(&bases);
    while let Some(entry) = entries.next().unwrap() {
        let gimli::CieOrFde::Fde(partial) = entry else {
            continue;
        };
        let fde = partial.parse(gimli::EhFrame::cie_from_offset).unwrap();
        let mut rows = fde.rows(&section, &bases, &mut context).unwrap();
        let mut last = String::new();
        while let Some(row) = rows.next_row().unwrap() {
            let cfa = match row.cfa() {
                gimli::CfaRule::Expression(e) => bytes(*e),
                rule => format!("{rule:?}"),
            };
            let rules = row.registers().map(|(register, rule)| match rule {
                gimli::RegisterRule::Expression(e) => (register.0, "at", bytes(*e)),
                gimli::RegisterRule::ValExpression(e) => (register.0, "is", bytes(*e)),
                rule => (register.0, "", format!("{rule:?}")),
            });
            let mut rules: Vec<_> = rules.collect();
            rules.sort();
            let size = row.saved_args_size();
            let text = format!("{cfa} {rules:?} {size}");
            if text != last {
                found.insert((fde.initial_address(), row.start_address()), text.clone());
                last = text;
            }
        }
    }
    found
}

/// gimli reads the same rows from linker output and from rewritten sections, without and with all
/// optimizations.
#[test]
fn each_measure_says_the_same_in_fewer_bytes() {
    for file in [
        "/lib/x86_64-linux-gnu/libc.so.6",
        "/usr/aarch64-linux-gnu/lib/libstdc++.so.6",
    ] {
        let data = std::fs::read(path(file)).unwrap();
        let units = elf::units(&data).unwrap();
        let unit = &units[0];
        let mut frames = unit.sections.iter();
        let frame = frames.find(|frame| frame.kind == SectionKind::EhFrame);
        let frame = frame.unwrap();
        let source = read_tables(unit.abi, &[unit.section(frame)]).table;
        let arch = unit.abi.arch;
        let rows = rows_of_gimli(&frame.data, frame.address, arch);
        assert!(rows.len() > 10_000, "{file}: {}", rows.len());
        let mut before = usize::MAX;
        for count in 0..=SizeOptimization::ALL.len() {
            let measures = &SizeOptimization::ALL[..count];
            let written = EhFrame::with_optimizations(&source, measures).unwrap();
            assert!(written.len() <= before, "{file}: {measures:?}");
            before = written.len();
            let data = written.bytes_at(frame.address).unwrap();
            let found = rows_of_gimli(&data, frame.address, arch);
            assert!(found == rows, "{file}: {measures:?}");
        }
        assert!(before < frame.data.len(), "{file}");
    }
}

/// Each entry gets its own rows: others find the same rows, ranges and CIEs at the entry's new
/// offset.
#[test]
fn rewritten_entries_equal_their_input() {
    let mut rows = 0;
    for file in FILES {
        let data = std::fs::read(path(file)).unwrap();
        for unit in elf::units(&data).unwrap() {
            let frames = unit.sections.iter();
            let frames = frames.filter(|frame| frame.kind == SectionKind::EhFrame);
            for frame in frames {
                let section = unit.section(frame);
                // Before relocation, addresses are relative to their field, and the section may
                // move down.
                let address = Vaddr(section.address.0.max(0x1_0000));
                let section = CfiSection { address, ..section };
                let source = read_tables(unit.abi, &[section]).table;
                let Ok(written) = rewrite(&section, &source, &Table::new(unit.abi)) else {
                    // Code in units of more than a byte: not x86.
                    assert_ne!(unit.abi.arch, Arch::X86_64, "{file}");
                    continue;
                };
                let data = &written.bytes;
                let back = read_tables(unit.abi, &[CfiSection { data, ..section }]);
                assert_eq!(back.problems, [], "{file}");
                assert_eq!(back.table.fdes().len(), source.fdes().len());
                let mut moved = written.unchanged.iter();
                for (old, new) in source.fdes().iter().zip(back.table.fdes()) {
                    let at = moved.find(|(from, _)| from.start == old.origin);
                    let (from, to) = at.unwrap();
                    assert_eq!(*to, new.origin, "{file}");
                    // Addresses relative to their field have moved with it.
                    let by = to.wrapping_sub(from.start);
                    let rows_of = |table: &Table, fde| {
                        let rows = table.rows(fde);
                        let rows = rows.map(|row| {
                            let text = format!("{:?}", table.row(row.row));
                            (row.start.0.wrapping_sub(fde.start.0), text)
                        });
                        let mut rows = rows.collect::<Vec<_>>();
                        rows.dedup_by(|next, row| next.1 == row.1);
                        rows
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

/// Cases that no single CIE can serve. Some entries save registers at their start that others never
/// save; a register loses its rule; states are restored with another size of arguments; and there
/// are more rows to restore than readers save.
#[test]
fn rows_of_all_kinds_are_written() {
    use std::fmt::Write as _;
    let mut text = String::from(
        "arch x86-64 little
fn 0x1000..0x1010
  0x1000  cfa=rsp+64  rbx=[cfa-16]  r12=[cfa-24]  ra=[cfa-8]
fn 0x1010..0x1020
  0x1010  cfa=rsp+64  rbx=[cfa-16]  r12=[cfa-24]  ra=[cfa-8]
fn 0x1020..0x1030
  0x1020  cfa=rsp+48  r14=[cfa-16]  ra=[cfa-8]
fn 0x1030..0x1040
  0x1030  cfa=rsp+16  r15=[cfa-16]  ra=[cfa-8]
  0x1034  cfa=rsp+8  ra=[cfa-8]
fn 0x1040..0x1050
  0x1040  cfa=rsp+4096  ra=[cfa-8]  args=16
  0x1041  cfa=rbp+16  ra=[cfa-8]  rbp=[cfa-16]
  0x1042  cfa=rsp+4096  ra=[cfa-8]  args=16
  0x1043  cfa=rsp+4096  ra=[cfa-8]
  0x1044  cfa=rbp+4  ra=[cfa-8]
  0x1045  cfa=rbp-513  ra=[cfa-8]
fn 0x2000..0x3000
",
    );
    for round in 0..500 {
        let at = 0x2000 + 4 * round;
        let number = round % 20;
        let depth = 1000 + 8 * number.min(20 - number);
        writeln!(
            text,
            "  {at:#x}  cfa=rsp+{depth}  rbx=[cfa-{depth}]  ra=[cfa-8]"
        )
        .unwrap();
    }
    let source = unspool_rows::text::parse(&text).unwrap();
    for count in 0..=SizeOptimization::ALL.len() {
        let written = EhFrame::with_optimizations(&source, &SizeOptimization::ALL[..count]);
        let refused = written.map(|_| ()).unwrap_err().to_string();
        assert!(refused.contains("not a multiple of a word"), "{refused}");
    }
    let source = text.replace("rbp-513", "rbp-512");
    let source = unspool_rows::text::parse(&source).unwrap();
    for count in 0..=SizeOptimization::ALL.len() {
        let written =
            EhFrame::with_optimizations(&source, &SizeOptimization::ALL[..count]).unwrap();
        let (back, fdes, _) = read_back(&written, &source, Vaddr(0x8000));
        assert_eq!(differences(&source, &back, DiffScope::RowsAndEntries), []);
        assert_eq!(fdes, 6);
    }
}
