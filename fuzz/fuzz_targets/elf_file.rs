//! Any bytes as an ELF file: every question ends without panic, the sections are what the
//! `object` crate finds in the same bytes, the symbols near an address say what all symbols say,
//! and a table that is embedded is found in the result.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use object::read::{Object as _, ObjectSection as _};
use unspool_elf::{
    DebugFiles, ElfFile, ElfKind, Lines, NewEhFrame, Symbols, eh_frame_of_object, embed,
    replace_eh_frame,
};
use unspool_rows::Vaddr;

fuzz_target!(|data: &[u8]| {
    let Ok(file) = ElfFile::from_bytes("fuzz", data.to_vec()) else {
        return;
    };
    let _ = (
        file.build_id(),
        file.program_interpreter(),
        file.has_arm_exception_index(),
    );
    let _ = (file.text_base(), file.data_base(), file.address_range());
    compare_sections(&file, data);
    compare_symbols(&file);
    compare_segments(&file);
    embed_and_find(&file);
    rewrite_and_read(&file);
    let lines = Lines::new(Arc::new(file), &DebugFiles::default(), &[]);
    for addr in [0, 0x1000, 0x1040] {
        let _ = lines.frames(Vaddr(addr));
    }
});

/// The bytes of sections, where both have an opinion: relocations are applied by one only.
fn compare_sections(file: &ElfFile, data: &[u8]) {
    let _ = (file.eh_frame_hdr(), file.sframes());
    for section in [file.eh_frames(), file.debug_frames()]
        .into_iter()
        .flatten()
        .flatten()
    {
        let end = section.address.0.checked_add(section.data.len() as u64);
        assert!(end.is_some() || section.address.0 != 0);
    }
    let Ok(other) = object::read::File::parse(data) else {
        return;
    };
    if file.kind() == ElfKind::Relocatable {
        return;
    }
    for theirs in other.sections().take(64) {
        let Ok(Some(ours)) = file.section(theirs.index().0) else {
            continue;
        };
        if let (Ok(bytes), Ok(name)) = (theirs.uncompressed_data(), theirs.name()) {
            assert_eq!(ours.name, name);
            assert_eq!(ours.address.0, theirs.address());
            assert!(ours.data == bytes.as_ref(), "the bytes of {name} differ");
        }
    }
}

/// Where sections of code overlap, a stub of one ends a label of another, which
/// `Symbols::for_addresses` may not see.
fn compare_symbols(file: &ElfFile) {
    let code = file.sections().filter(|section| section.executable);
    let mut code: Vec<_> = code.filter_map(|s| Some((s.address?.0, s.size))).collect();
    code.sort_unstable();
    if code
        .windows(2)
        .any(|pair| pair[0].0.saturating_add(pair[0].1) > pair[1].0)
    {
        return;
    }
    let all = Symbols::new(file, None);
    let addresses = all.iter().take(16).map(|symbol| symbol.address.0);
    for addr in addresses
        .chain([0, 0x1000])
        .flat_map(|at| [at.wrapping_sub(1), at, at.wrapping_add(1)])
    {
        let near = Symbols::for_addresses(file, None, &[Vaddr(addr)]);
        let name = |symbols: &Symbols| {
            symbols
                .lookup(Vaddr(addr))
                .map(|symbol| (symbol.name.to_string(), symbol.address))
        };
        assert_eq!(name(&near), name(&all), "at {addr:#x}");
    }
}

fn compare_segments(file: &ElfFile) {
    for segment in file.segments().take(16) {
        let start = segment.range().start;
        if let (Some(bytes), Some(offset)) = (file.bytes_at(start, 4), file.offset_of_vaddr(start))
        {
            let offset = usize::try_from(offset).unwrap();
            assert_eq!(bytes, &file.bytes()[offset..offset + 4]);
        }
    }
}

/// An object file's table, with an address at its end, is written into a file that is one.
fn rewrite_and_read(file: &ElfFile) {
    let Ok(old) = eh_frame_of_object(file) else {
        return;
    };
    let bytes = [old, &[1; 8][..]].concat();
    let new = NewEhFrame {
        bytes: &bytes,
        kept: &[(0..old.len() as u64, 0)],
        pointers: &[(old.len() as u64, Vaddr(0))],
    };
    if let Ok(written) = replace_eh_frame(file, &new) {
        ElfFile::from_bytes("written", written).unwrap();
    }
}

fn embed_and_find(file: &ElfFile) {
    let content = b"unspool\0\x01\0 something to be found again";
    let Ok(bytes) = embed(file, ".unspool", content, 64) else {
        return;
    };
    let result = ElfFile::from_bytes("result", bytes).unwrap();
    // Section headers that say nonsense may hide it.
    if let Some((_, found)) = result.embedded(".unspool", &content[..8]) {
        assert!(found.starts_with(content));
    }
}
