//! Any bytes as an ELF file whose code is made rows of: an end, no panic, and no two entries for one address.
#![no_main]

use libfuzzer_sys::fuzz_target;
use unspool_elf::ElfFile;
use unspool_synthesis::synthesize;

fuzz_target!(|data: &[u8]| {
    let Ok(file) = ElfFile::from_bytes("fuzzed", data) else {
        return;
    };
    let Ok(synthesis) = synthesize(&file, file.symbols(), &[]) else {
        return;
    };
    assert!(synthesis.table.overlaps(1).is_empty());
    for function in &synthesis.functions {
        assert!(function.instructions_with_row <= function.instructions);
    }
});
