//! Relocatable files: their layout, and relocations applied to it.

use std::collections::BTreeMap;

use crate::common::{PROGRAM, binutils, compile, compile_cxx, directory};
use gimli::{BaseAddresses, CieOrFde, EndianSlice, LittleEndian, UnwindSection};
use unspool_elf::{DebugFiles, ElfFile, Lines, RelocationError, Section};
use unspool_rows::Vaddr;

/// The first address and length of each FDE.
fn eh_frame_ranges(section: &Section<'_>, address_size: u8) -> BTreeMap<u64, u64> {
    let mut frame = gimli::EhFrame::new(section.data, LittleEndian);
    frame.set_address_size(address_size);
    ranges(
        &frame,
        &BaseAddresses::default().set_eh_frame(section.address.0),
    )
}

fn ranges<'a, S>(section: &S, bases: &BaseAddresses) -> BTreeMap<u64, u64>
where
    S: UnwindSection<EndianSlice<'a, LittleEndian>>,
    S::Offset: gimli::UnwindOffset<usize>,
{
    let mut found = BTreeMap::new();
    let mut entries = section.entries(bases);
    while let Some(entry) = entries.next().unwrap() {
        if let CieOrFde::Fde(partial) = entry {
            let fde = partial.parse(S::cie_from_offset).unwrap();
            found.insert(fde.initial_address(), fde.len());
        }
    }
    found
}

/// The functions of the symbol table, for comparison with the frame descriptions.
fn functions(file: &ElfFile) -> BTreeMap<u64, u64> {
    let sized = file.symbols().iter().filter(|symbol| symbol.size > 0);
    sized
        .map(|symbol| (symbol.address.0, symbol.size))
        .collect()
}

#[test]
fn frame_descriptions_meet_their_functions() {
    let dir = directory("frame_descriptions_meet_their_functions");
    for (name, arguments, address_size) in [
        ("plain", &["-c", "-O2"][..], 8),
        ("sections", &["-c", "-O2", "-ffunction-sections"], 8),
        ("large", &["-c", "-mcmodel=large"], 8),
        (
            "i386",
            &["-c", "-m32", "-ffunction-sections", "-fno-pic"],
            4,
        ),
    ] {
        let path = compile(&dir, name, PROGRAM, arguments);
        let file = ElfFile::open(&path).unwrap();
        let sections = file.eh_frames().unwrap();
        assert_eq!(sections.len(), 1);
        assert_eq!(sections[0].problems, []);
        let expected = functions(&file);
        assert!(expected.len() >= 3);
        assert_eq!(
            eh_frame_ranges(&sections[0], address_size),
            expected,
            "{name}"
        );

        let arguments: Vec<&str> = arguments
            .iter()
            .chain(&["-g", "-fno-asynchronous-unwind-tables", "-fno-exceptions"])
            .copied()
            .collect();
        let path = compile(&dir, &format!("{name}.debug"), PROGRAM, &arguments);
        let file = ElfFile::open(&path).unwrap();
        let sections = file.debug_frames().unwrap();
        assert_eq!((sections.len(), sections[0].problems), (1, &[][..]));
        let mut frame = gimli::DebugFrame::new(sections[0].data, LittleEndian);
        frame.set_address_size(address_size);
        assert_eq!(
            ranges(&frame, &BaseAddresses::default()),
            functions(&file),
            "{name}"
        );
    }
}

#[test]
fn text_comes_first_and_every_address_has_a_section() {
    let dir = directory("text_comes_first");
    let path = compile(&dir, "object", PROGRAM, &["-c", "-ffunction-sections"]);
    let file = ElfFile::open(&path).unwrap();
    assert_eq!(file.text_base(), Some(Vaddr(0)));
    for name in ["outer", "local", "main"] {
        let symbol = file.symbols().named(name).next().unwrap();
        let (section, start) = file.section_of(Vaddr(symbol.address.0 + 1)).unwrap();
        assert_eq!(
            (section.as_ref(), start),
            (format!(".text.{name}").as_str(), symbol.address)
        );
        assert!(
            file.executable_ranges()
                .iter()
                .any(|range| range.contains(&symbol.address))
        );
    }
}

#[test]
fn direct_calls_lead_to_the_function() {
    let dir = directory("direct_calls");
    let source = "void b(void); void x(void); void a(void) { b(); x(); }\n\
                  __attribute__((noipa, section(\".text.b\"))) void b(void) {}\n";
    let path = compile(
        &dir,
        "object",
        source,
        &["-c", "-O2", "-fno-inline", "-fno-optimize-sibling-calls"],
    );
    let file = ElfFile::open(&path).unwrap();
    let symbol = |name| file.symbols().named(name).next().unwrap();
    let (a, b) = (symbol("a"), symbol("b"));
    let code = file.bytes_at(a.address, a.size).unwrap();
    let calls: Vec<u64> = (0..code.len() - 4)
        .filter(|at| code[*at] == 0xe8)
        .map(|at| {
            let target = i32::from_le_bytes(code[at + 1..at + 5].try_into().unwrap());
            (a.address.0 + at as u64 + 5).wrapping_add_signed(i64::from(target))
        })
        .collect();
    assert_eq!(calls.len(), 2);
    assert_eq!(calls[0], b.address.0);
    // An undefined symbol is outside of every section, but has an address.
    assert!(calls[1] >= 4096);
    assert_eq!(file.section_of(Vaddr(calls[1])), None);
}

#[test]
fn a_relocation_that_cannot_be_applied_is_listed() {
    let dir = directory("a_relocation_that_cannot_be_applied");
    let source = "asm(\".section .text.x,\\\"ax\\\"\\n.long 0x11223344\\n\
                  .reloc 0, R_X86_64_GOTPCREL, away\\n.reloc 2, R_X86_64_64, away\\n\");";
    let path = compile(&dir, "object", source, &["-c"]);
    let file = ElfFile::open(&path).unwrap();
    let section = file.section_named(".text.x").unwrap().unwrap();
    assert_eq!(section.data, 0x1122_3344_u32.to_le_bytes());
    assert_eq!(
        section.problems,
        [
            RelocationError::Unsupported { offset: 0, kind: 9 },
            RelocationError::OutOfSection { offset: 2, size: 4 },
        ]
    );
}

#[test]
fn several_eh_frame_sections() {
    let dir = directory("several_eh_frame_sections");
    let source =
        "asm(\".section .eh_second,\\\"a\\\"\\n.long 0\\n.text\\n\"); int f(void) { return 1; }";
    let path = compile(&dir, "object", source, &["-c"]);
    binutils(
        "objcopy",
        [
            "--rename-section=.eh_second=.eh_frame".as_ref(),
            path.as_os_str(),
        ],
    );
    let file = ElfFile::open(&path).unwrap();
    let mut sizes: Vec<usize> = file
        .eh_frames()
        .unwrap()
        .iter()
        .map(|s| s.data.len())
        .collect();
    sizes.sort_unstable();
    assert_eq!(sizes.len(), 2);
    assert_eq!(sizes[0], 4);
}

#[test]
fn lines_of_an_object_file_with_groups() {
    let dir = directory("lines_of_an_object_file");
    let source = "template<class T> T twice(T x) {\n  return x + x;\n}\n\
                  int one(int x) {\n  return twice(x);\n}\nlong two(long x) {\n  return twice(x);\n}\n";
    let path = compile_cxx(&dir, "object", source, &["-c", "-g", "-ffunction-sections"]);
    let file = std::sync::Arc::new(ElfFile::open(&path).unwrap());
    let lines = Lines::new(file.clone(), &DebugFiles::default(), &[]);
    for (name, readable, line) in [
        ("_Z3onei", "one(int)", 4),
        ("_Z3twol", "two(long)", 7),
        ("_Z5twiceIiET_S0_", "int twice<int>(int)", 1),
    ] {
        let symbol = file.symbols().named(name).next().unwrap();
        let frames = lines.frames(symbol.address).unwrap();
        assert_eq!(frames.len(), 1);
        assert_eq!(frames[0].function.as_deref(), Some(readable));
        assert_eq!(frames[0].line, Some(line));
    }
}
