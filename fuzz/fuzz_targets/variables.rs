//! Any bytes as an ELF file with debug information: asking for variables in its code ends without panic, and what is known has a part that is known.
#![no_main]

use libfuzzer_sys::fuzz_target;
use unspool_elf::ElfFile;

#[path = "../../crates/dwarf-types/tests/it/everything.rs"]
mod everything;

fuzz_target!(|data: &[u8]| {
    let Ok(file) = ElfFile::from_bytes("fuzz", data.to_vec()) else {
        return;
    };
    let segments = file.segments().filter(|segment| segment.executable);
    let addresses: Vec<u64> = segments
        .flat_map(|segment| (0..16).map(move |nth| segment.vaddr.0.wrapping_add(nth * 16)))
        .take(64)
        .collect();
    everything::ask(&file, &addresses);
});
