//! Any bytes as an ELF file: at an address of a target's memory, where its headers, its search table
//! and an entry are read; and as a file, of which `.debug_frame` is read, and whose function at an address is
//! the one that `object` finds.
#![no_main]

use core::ops::ControlFlow;

use libfuzzer_sys::fuzz_target;
use object::elf::{FileHeader64, STT_FUNC};
use object::read::elf::{FileHeader, Sym};
use object::{Endianness, SectionIndex, elf};
use unspool_libunwind_compat::abi::Error;
use unspool_libunwind_compat::client::AlignedMemory;
use unspool_libunwind_compat::image::{self, LoadedHeaders};
use unspool_libunwind_compat::sys::debug_frame_entry::DebugFrameEntry;
use unspool_libunwind_compat::{debug_frame, remote_cfi};
use unspool_rows::LoadBias;

const BASE: u64 = 0x7f00_0000_0000;

fuzz_target!(|data: &[u8]| {
    let memory = AlignedMemory::new(|addr| {
        let at = usize::try_from(addr.wrapping_sub(BASE)).unwrap();
        let word = data.get(at..).and_then(|rest| rest.first_chunk());
        word.map(|word| u64::from_le_bytes(*word))
            .ok_or(Error::INVALID)
    });
    if let Ok(image) = LoadedHeaders::read(&memory, BASE)
        && let Ok(table) = image.table(&memory)
    {
        assert_eq!((table.start_ip, table.end_ip), (image.start, image.end));
        for ip in [
            image.start,
            image.start.wrapping_add(0x100),
            image.end.wrapping_sub(1),
        ] {
            if let Ok(info) = remote_cfi::search(&memory, &table, ip) {
                assert!((info.start_ip..info.end_ip).contains(&ip));
                let _ = remote_cfi::rows(&memory, &info, |row| {
                    assert!(row.start < row.end);
                    Ok(ControlFlow::Continue(()))
                });
            }
        }
    }
    let entry = DebugFrameEntry::empty();
    for vaddr in [0, 0x1000, 0x1234, u64::MAX] {
        if let Ok(info) = debug_frame::find(data, LoadBias(0), vaddr, &entry) {
            assert!((info.start_ip..info.end_ip).contains(&vaddr));
            let _ = remote_cfi::rows(&memory, &info, |row| {
                assert!(row.start < row.end);
                Ok(ControlFlow::Continue(()))
            });
        }
        let found = image::function(data, vaddr);
        if let Some((_, distance)) = found {
            assert!(distance <= vaddr);
        }
        if let Some(least) = least_distance(data, vaddr) {
            assert!(
                found.is_some_and(|(_, distance)| distance <= least),
                "{least:#x}"
            );
        }
    }
});

/// How far before an address the last function of the dynamic symbol table begins, for what `object`
/// takes for a whole file.
fn least_distance(data: &[u8], vaddr: u64) -> Option<u64> {
    let header = FileHeader64::<Endianness>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let is_supported = header.e_machine(endian) == elf::EM_X86_64 && endian == Endianness::Little;
    if !is_supported || header.e_phentsize(endian) != 56 || header.e_shnum(endian) == 0 {
        return None;
    }
    let sections = header.sections(endian, data).ok()?;
    let symbols = sections.symbols(endian, data, elf::SHT_DYNSYM).ok()?;
    let section = sections.section(symbols.section()).ok()?;
    if symbols.section() == SectionIndex(0) || section.sh_type.get(endian) != elf::SHT_DYNSYM {
        return None;
    }
    let is_named_function = |symbol: &&elf::Sym64<Endianness>| {
        let is_function = symbol.st_type() == STT_FUNC && !symbol.is_undefined(endian);
        is_function && symbol.name(endian, symbols.strings()).is_ok()
    };
    let before = |symbol: &elf::Sym64<Endianness>| vaddr.checked_sub(symbol.st_value(endian));
    symbols
        .iter()
        .filter(is_named_function)
        .filter_map(before)
        .min()
}
