//! Object files of other architectures and byte orders.

use std::path::{Path, PathBuf};

use crate::common::{binutils, directory};
use gimli::{BaseAddresses, CieOrFde, EndianSlice, RunTimeEndian, UnwindSection};
use unspool_elf::{ElfFile, ElfKind};
use unspool_rows::arch::AddressSize;
use unspool_rows::{Arch, Endian, Vaddr};

/// Two functions in sections of their own, each with an instruction of 4 bytes.
const FUNCTIONS: &str = "\
.cfi_sections .eh_frame, .debug_frame
.section .text.first,\"ax\"
.globl first
.type first, %function
first:
.cfi_startproc
nop
nop
.cfi_endproc
.size first, . - first
.section .text.second,\"ax\"
.globl second
.type second, %function
second:
.cfi_startproc
bl first
.cfi_endproc
.size second, . - second
";

fn assemble(directory: &Path, triple: &str, source: &str) -> PathBuf {
    let (text, object) = (
        directory.join(format!("{triple}.s")),
        directory.join(format!("{triple}.o")),
    );
    std::fs::write(&text, source).unwrap();
    let triple = format!("--triple={triple}");
    let arguments = ["--filetype=obj", &triple, "-o"].map(AsRef::as_ref);
    let paths = [object.as_os_str(), text.as_os_str()];
    binutils("llvm-mc", arguments.into_iter().chain(paths));
    object
}

/// (first address, length) of each function described in `.debug_frame`.
fn described(file: &ElfFile) -> Vec<(u64, u64)> {
    let sections = file.debug_frames().unwrap();
    assert_eq!(sections.len(), 1);
    assert_eq!(sections[0].problems, []);
    let endian = match file.abi().endian {
        Endian::Little => RunTimeEndian::Little,
        Endian::Big => RunTimeEndian::Big,
    };
    let mut frame = gimli::DebugFrame::from(EndianSlice::new(sections[0].data, endian));
    frame.set_address_size(file.word().bytes());
    let bases = BaseAddresses::default();
    let mut entries = frame.entries(&bases);
    let mut found = Vec::new();
    while let Some(entry) = entries.next().unwrap() {
        if let CieOrFde::Fde(partial) = entry {
            let fde = partial.parse(gimli::DebugFrame::cie_from_offset).unwrap();
            found.push((fde.initial_address(), fde.len()));
        }
    }
    found
}

#[test]
fn relocations_of_arm_and_aarch64() {
    let dir = directory("relocations_of_arm_and_aarch64");
    for (triple, arch, word, endian) in [
        ("aarch64", Arch::Aarch64, AddressSize::W64, Endian::Little),
        ("aarch64_be", Arch::Aarch64, AddressSize::W64, Endian::Big),
        (
            "armv7-linux-gnueabi",
            Arch::Arm,
            AddressSize::W32,
            Endian::Little,
        ),
        (
            "armebv7-linux-gnueabi",
            Arch::Arm,
            AddressSize::W32,
            Endian::Big,
        ),
    ] {
        let file = ElfFile::open(assemble(&dir, triple, FUNCTIONS)).unwrap();
        assert_eq!(file.kind(), ElfKind::Relocatable);
        assert_eq!((file.abi().arch, file.word()), (arch, word), "{triple}");
        assert_eq!(file.abi().endian, endian);
        assert_eq!(described(&file), [(0, 8), (8, 4)], "{triple}");
        let names: Vec<String> = [0, 7, 8, 11, 12]
            .map(|addr| file.symbols().lookup(Vaddr(addr)))
            .map(|symbol| symbol.map_or("-".to_owned(), |symbol| symbol.name.into_owned()))
            .to_vec();
        assert_eq!(
            names,
            ["first", "first", "second", "second", "-"],
            "{triple}"
        );
        assert_eq!(file.symbols().len(), 2, "no mapping symbols: {triple}");
        assert_eq!(file.eh_frames().unwrap()[0].problems, []);
    }
    // `bl first` is 8 bytes behind `first`: -2 words.
    let file = ElfFile::open(dir.join("aarch64.o")).unwrap();
    let code = file.bytes_at(Vaddr(8), 4).unwrap();
    assert_eq!(code, 0x97ff_fffe_u32.to_le_bytes());
}

#[test]
fn thumb_functions_are_even() {
    let dir = directory("thumb_functions_are_even");
    let source = ".syntax unified\n.thumb\n.thumb_func\n.type f, %function\nf: nop\n.size f, 2\n";
    let file = ElfFile::open(assemble(&dir, "thumbv7-linux-gnueabi", source)).unwrap();
    let symbol = file.symbols().lookup(Vaddr(0)).unwrap();
    assert_eq!((symbol.name.as_ref(), symbol.address), ("f", Vaddr(0)));
}

#[test]
fn a_machine_that_is_not_known() {
    let dir = directory("a_machine_that_is_not_known");
    let source = "f: nop\n.cfi_startproc\nnop\n.cfi_endproc\n.data\n.quad f\n";
    let file = ElfFile::open(assemble(&dir, "powerpc64-linux-gnu", source)).unwrap();
    let machine = Arch::Other {
        machine: 21,
        address_size: AddressSize::W64,
    };
    assert_eq!((file.abi().arch, file.abi().endian), (machine, Endian::Big));
    let data = file.section_named(".data").unwrap().unwrap();
    assert_eq!(data.data.len(), 8);
    assert_eq!(data.problems.len(), 1);
    assert_eq!(
        data.problems[0].to_string(),
        "relocation at section offset 0x0: type 38 is not supported"
    );
}
