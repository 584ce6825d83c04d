//! Files that lie, and code that is none: rows are made of them, or are not, but to an end.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test"
)]

use std::process::Command;

use unspool_module::ElfFile;
use unspool_recover::synthesize;

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

/// Makes rows of a file, if it is one. Entries must not overlap, nor leave the file's code.
fn synthesized(bytes: &[u8]) -> bool {
    let Ok(file) = ElfFile::from_bytes("changed", bytes) else {
        return false;
    };
    let Ok(synthesis) = synthesize(&file, &[]) else {
        return false;
    };
    assert_eq!(synthesis.table.overlaps(1).len(), 0);
    for function in &synthesis.functions {
        assert!(function.described <= function.instructions);
    }
    true
}

#[test]
fn changed_files_come_to_an_end() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/functions.c");
    let gcc = Command::new("gcc")
        .args(["-O2", source, "-o"])
        .arg(&program)
        .status();
    assert!(gcc.expect("install gcc").success());
    let strip = Command::new("strip").arg(&program).status();
    assert!(strip.expect("install binutils").success());
    let whole = std::fs::read(&program).unwrap();
    let mut random = Random(1);
    let mut done = 0;
    for round in 0..400 {
        let mut bytes = whole.clone();
        // The headers are at both ends; code is in between.
        for _ in 0..=random.below(if round % 2 == 0 { 4 } else { 400 }) {
            let at = random.below(bytes.len());
            bytes[at] = random.byte();
        }
        bytes.truncate(bytes.len() - random.below(2) * random.below(64));
        done += usize::from(synthesized(&bytes));
    }
    assert!(done > 100, "{done}");
}

/// An object file whose code is random bytes, without symbols.
#[test]
fn random_code_comes_to_an_end() {
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
        let assembler = Command::new("as")
            .arg(&source)
            .arg("-o")
            .arg(&object)
            .status();
        assert!(assembler.expect("install binutils").success());
        assert!(synthesized(&std::fs::read(&object).unwrap()));
    }
}
