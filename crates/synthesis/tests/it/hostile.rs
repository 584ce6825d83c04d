//! Corrupt files, and bytes that are not code: with or without rows, synthesis ends.

use std::path::Path;

use unspool_elf::ElfFile;
use unspool_synthesis::synthesize;
use unspool_testing::{Finish as _, tool};

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.below(256)).unwrap()
    }
}

/// Makes rows for a file, if it is one. Entries must not overlap, nor leave the file's code.
fn synthesized(bytes: &[u8]) -> bool {
    let Ok(file) = ElfFile::from_bytes("changed", bytes) else {
        return false;
    };
    let Ok(synthesis) = synthesize(&file, file.symbols(), &[]) else {
        return false;
    };
    assert_eq!(synthesis.table.overlaps(1).len(), 0);
    for function in &synthesis.functions {
        assert!(function.instructions_with_row <= function.instructions);
    }
    true
}

#[test]
fn analysis_of_changed_files_terminates() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/functions.c");
    tool("gcc")
        .args(["-O2", source, "-o"])
        .arg(&program)
        .succeed();
    tool("strip").arg(&program).succeed();
    let whole = std::fs::read(&program).unwrap();
    let mut random = Random(1);
    let mut done = 0;
    for round in 0..400 {
        let mut bytes = whole.clone();
        // The headers are at both ends, the code is between.
        for _ in 0..=random.below(if round % 2 == 0 { 4 } else { 400 }) {
            let at = random.below(bytes.len());
            bytes[at] = random.byte();
        }
        bytes.truncate(bytes.len() - random.below(2) * random.below(64));
        done += usize::from(synthesized(&bytes));
    }
    assert!(done > 100, "{done}");
}

/// An object file with random bytes as code, without symbols.
#[test]
fn analysis_of_random_code_terminates() {
    let folder = tempfile::tempdir().unwrap();
    let (source, object) = (folder.path().join("x.s"), folder.path().join("x.o"));
    let mut random = Random(2);
    for size in [1, 100, 5000, 100_000] {
        let bytes: Vec<String> = (0..size).map(|_| random.byte().to_string()).collect();
        let lines: Vec<String> = bytes
            .chunks(64)
            .map(|line| format!(".byte {}\n", line.join(",")))
            .collect();
        std::fs::write(&source, format!(".globl f\nf:\n{}", lines.concat())).unwrap();
        assemble(&source, &object);
        assert!(synthesized(&std::fs::read(&object).unwrap()));
    }
}

fn assemble(source: &Path, object: &Path) {
    tool("as").arg(source).arg("-o").arg(object).succeed();
}

/// A shared object with this many functions, each with a call and a landing pad, and with these
/// bytes as LSDAs.
fn with_areas(folder: &Path, functions: usize, areas: &[u8]) -> Vec<u8> {
    let (source, data) = (folder.join("areas.s"), folder.join("areas"));
    let (object, library) = (folder.join("areas.o"), folder.join("areas.so"));
    std::fs::write(&data, areas).unwrap();
    let text = format!(
        ".rept {functions}\n.p2align 4\npush %rbx\ncall f\npop %rbx\nret\npush %rax\ncall f\nud2\n.endr\n\
         .globl f\n.hidden f\nf: ret\n\
         .section .gcc_except_table,\"a\",@progbits\n.incbin \"{}\"\n",
        data.display()
    );
    std::fs::write(&source, text).unwrap();
    assemble(&source, &object);
    let mut linker = tool("ld");
    linker
        .arg("-shared")
        .arg(&object)
        .arg("-o")
        .arg(&library)
        .succeed();
    std::fs::read(&library).unwrap()
}

/// An LSDA for a function with a call at 1 and a landing pad at 8.
const AREA: [u8; 8] = [0xff, 0xff, 1, 4, 1, 5, 8, 0];

/// Number of these functions with rows for their pads.
fn pads_with_rows(bytes: &[u8], functions: u64) -> usize {
    let file = ElfFile::from_bytes("areas", bytes).unwrap();
    let text = file.section_named(".text").unwrap().unwrap().address;
    let table = synthesize(&file, file.symbols(), &[]).unwrap().table;
    let spans: Vec<_> = table.spans().collect();
    let has_row = |function: &u64| {
        let pad = text.offset(function * 16 + 8);
        spans.iter().any(|span| span.start <= pad && pad < span.end)
    };
    (0..functions).filter(has_row).count()
}

#[test]
fn analysis_of_false_lsdas_terminates() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    assert_eq!(pads_with_rows(&with_areas(path, 4, &AREA), 4), 4);
    // Greatest possible numbers: bases of pads, lengths, call sites, types, filters.
    let most: &[u8] = &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
    let least: &[u8] = &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x7f];
    let lies = [
        [&[0xff, 0xff, 1], most].concat(),
        [&[0xff, 0x9b], most, &[1, 0]].concat(),
        [
            &[0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
            &AREA[1..],
        ]
        .concat(),
        [&[0xff, 0xff, 1, 13, 1], most, &[8, 0]].concat(),
        [&[0xff, 0xff, 1, 22], most, most, &[8, 0]].concat(),
        [&[0xff, 0xff, 1, 13, 1, 5], most, &[0]].concat(),
        [&[0xff, 0x9b, 100, 1, 13, 1, 5, 8], most, &[0; 100]].concat(),
        [&[0xff, 0x9b, 30, 1, 4, 1, 5, 8, 1], least, &[0; 100]].concat(),
        // Types that end before they begin, repeatedly.
        [0xff, 0x9b, 0, 1, 4, 1, 5, 8, 1].repeat(1000),
        // Actions that are their own successors, and each other's.
        [
            &[0xff, 0x9b, 10, 1, 4, 1, 5, 8, 1, 1, 0x7f][..],
            &[1, 0x7d, 1, 1],
        ]
        .concat()
        .repeat(1000),
        // Call sites in descending order.
        vec![0xff, 0xff, 1, 8, 5, 5, 8, 0, 1, 5, 8, 0],
        // Encodings that do not exist.
        vec![0x0d; 1000],
        vec![0xff; 1000],
    ];
    for lie in lies {
        let bytes = with_areas(path, 4, &lie);
        assert!(synthesized(&bytes), "{lie:x?}");
    }
    let mut random = Random(3);
    for size in 0..100 {
        let areas: Vec<u8> = (0..size * 40)
            .map(|place| match random.below(4) {
                0 => random.byte(),
                _ => AREA[place % AREA.len()],
            })
            .collect();
        assert!(synthesized(&with_areas(path, 3, &areas)));
    }
}

/// The same LSDA is read once, with any result; LSDAs with the same beginning are compared in
/// bounded time.
#[test]
fn analysis_of_millions_of_lsdas_terminates() {
    let folder = tempfile::tempdir().unwrap();
    let same = AREA.repeat(1_000_000);
    assert_eq!(pads_with_rows(&with_areas(folder.path(), 4, &same), 4), 4);
    // More call sites than each function has, so that each function is compared with all of them.
    let alike = |number: u32| {
        let [low, high] = [number % 128, number / 128].map(|part| u8::try_from(part).unwrap());
        [0xff, 0xff, 1, 9, 1, 5, 8, 0, 9, low | 0x80, high, 0, 0]
    };
    let alike: Vec<u8> = (0..16_000).flat_map(alike).collect();
    assert_eq!(
        pads_with_rows(&with_areas(folder.path(), 2000, &alike), 2000),
        0
    );
}
