//! Files of this machine, compared with `readelf` row by row.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use unspool_rows::arch::AddressSize;
use unspool_rows::{Arch, Endian, Pointer, Vaddr};
use unspool_testing::packages;
use xtask::elf;
use xtask::readelf_compare::{self, ReadelfReport};

/// Files of several compilers, languages, architectures and byte orders, from Debian's packages.
/// ARM's libc has only an empty `.eh_frame`; its libubsan has `.debug_frame`.
pub(crate) const FILES: [&str; 21] = [
    "/lib/x86_64-linux-gnu/libc.so.6",
    "/lib64/ld-linux-x86-64.so.2",
    "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
    "/usr/lib/x86_64-linux-gnu/libgcrypt.so.20",
    "/usr/lib/x86_64-linux-gnu/libc.a",
    "/usr/lib/x86_64-linux-gnu/crti.o",
    "/usr/bin/gdb",
    "/usr/bin/readelf",
    "/usr/lib32/libc.so.6",
    "/usr/lib32/libm.so.6",
    "/usr/lib32/ld-linux.so.2",
    "/usr/lib32/libstdc++.so.6",
    "/usr/aarch64-linux-gnu/lib/libc.so.6",
    "/usr/aarch64-linux-gnu/lib/libm.so.6",
    "/usr/aarch64-linux-gnu/lib/libresolv.so.2",
    "/usr/aarch64-linux-gnu/lib/ld-linux-aarch64.so.1",
    "/usr/aarch64-linux-gnu/lib/libstdc++.so.6",
    "/usr/arm-linux-gnueabihf/lib/libc.so.6",
    "/usr/arm-linux-gnueabihf/lib/libubsan.so.1.0.0",
    "/usr/powerpc-linux-gnu/lib/libc.so.6",
    "/usr/s390x-linux-gnu/lib/libc.so.6",
];

/// The path of a file listed by `xtask`, or of a file in the same package and folder.
pub(crate) fn path(file: &str) -> PathBuf {
    let file = Path::new(file);
    let listed = packages::NEEDED.iter().map(|needed| Path::new(needed.file));
    let beside = listed.filter(|listed| listed.parent() == file.parent());
    let nearest = beside.max_by_key(|listed| *listed == file).unwrap_or(file);
    let found = packages::path(nearest.to_str().unwrap());
    let found = found.unwrap_or_else(|error| panic!("{error}"));
    found.with_file_name(file.file_name().unwrap())
}

fn check(file: &str) -> ReadelfReport {
    let report = readelf_compare::compare_file(&path(file)).unwrap();
    for difference in &report.differences {
        println!("{file}: {difference}");
    }
    assert_eq!(report.difference_count, 0, "{file}");
    assert_eq!(report.problems, [], "{file}");
    report
}

#[test]
fn rows_are_those_of_readelf() {
    let mut sections = 0;
    let mut rows = [
        (Arch::X86_64, 200_000),
        (Arch::I386, 150_000),
        (Arch::Aarch64, 45_000),
        (Arch::Arm, 3000),
        (Arch::from_elf(20, AddressSize::W32), 40_000), // PowerPC
        (Arch::from_elf(22, AddressSize::W64), 14_000), // S/390
    ]
    .map(|(arch, least)| (arch, least, 0));
    for file in FILES {
        let report = check(file);
        sections += report.sections;
        let data = std::fs::read(path(file)).unwrap();
        let arch = elf::units(&data).unwrap()[0].abi.arch;
        let rows = rows.iter_mut().find(|(known, ..)| *known == arch);
        rows.unwrap().2 += report.rows;
    }
    assert!(sections > 500, "{sections} sections");
    for (arch, least, rows) in rows {
        assert!(rows >= least, "{rows} rows of {arch:?}");
    }
}

/// libgcrypt 1.10's SHA-2 code switches from an expression to a register with
/// `.cfi_def_cfa_register`, and relies on the offset before the expression.
#[test]
fn an_expression_leaves_the_offset_in_place() {
    let report = check("/usr/lib/x86_64-linux-gnu/libgcrypt.so.20");
    assert!(report.fdes > 1000);
}

/// The comparison works: it finds a change on one side.
#[test]
fn a_changed_byte_is_a_difference() {
    let file = path("/lib64/ld-linux-x86-64.so.2");
    let data = std::fs::read(&file).unwrap();
    let units = elf::units(&data).unwrap();
    let bytes = units[0].sections[0].data.to_vec();
    let mut missed = Vec::new();
    let mut tried = 0;
    // DW_CFA_def_cfa_offset, and DW_CFA_offset of rbx, in the first kilobytes
    for at in 0..4000 {
        if bytes[at] == 0x0e && bytes[at + 1] == 16 {
            let mut changed = elf::units(&data).unwrap();
            let mut bytes = bytes.clone();
            bytes[at + 1] = 24;
            changed[0].sections[0].data = Cow::Owned(bytes);
            tried += 1;
            if readelf_compare::compare(&file, &changed)
                .unwrap()
                .difference_count
                == 0
            {
                missed.push(at);
            }
            if tried == 8 {
                break;
            }
        }
    }
    assert!(
        tried == 8 && missed.is_empty(),
        "{tried} tried, {missed:?} not found"
    );
}

/// Personality routines and LSDAs compared with gimli, since `readelf` does not decode them.
#[test]
fn personality_and_lsda_are_those_of_gimli() {
    use gimli::UnwindSection;
    let mut compared = 0;
    for file in FILES {
        let data = std::fs::read(path(file)).unwrap();
        for unit in elf::units(&data).unwrap() {
            for frame in &unit.sections {
                if frame.kind != unspool_cfi::SectionKind::EhFrame || unit.member.is_some() {
                    continue;
                }
                let table = unspool_cfi::read_table(&unit.section(frame)).table;
                let endian = match unit.abi.endian {
                    Endian::Little => gimli::RunTimeEndian::Little,
                    Endian::Big => gimli::RunTimeEndian::Big,
                };
                let mut section = gimli::EhFrame::new(&frame.data, endian);
                section.set_address_size(unit.abi.arch.spec().address_size.bytes());
                let bases = gimli::BaseAddresses::default().set_eh_frame(frame.address.0);
                for fde in table.fdes() {
                    let offset = usize::try_from(fde.origin).unwrap();
                    let theirs = section
                        .fde_from_offset(&bases, offset.into(), gimli::EhFrame::cie_from_offset)
                        .unwrap();
                    let theirs = (
                        Vaddr(theirs.initial_address()),
                        theirs.personality().map(pointer),
                        theirs
                            .lsda()
                            .map(pointer)
                            .map(target)
                            .filter(|lsda| lsda.0 != 0),
                    );
                    assert_eq!((fde.start, fde.personality, fde.lsda), theirs, "{file}");
                    compared += u64::from(fde.lsda.is_some());
                }
            }
        }
    }
    assert!(compared > 1000, "{compared} LSDAs");
}

fn pointer(theirs: gimli::Pointer) -> Pointer {
    match theirs {
        gimli::Pointer::Direct(address) => Pointer::Direct(Vaddr(address)),
        gimli::Pointer::Indirect(address) => Pointer::Indirect(Vaddr(address)),
    }
}

fn target(pointer: Pointer) -> Vaddr {
    match pointer {
        Pointer::Direct(address) | Pointer::Indirect(address) => address,
    }
}
