//! Any bytes as a core file: nothing panics, and memory is what the first segment that covers it has in
//! the file.
#![no_main]

use std::ffi::CString;

use libfuzzer_sys::fuzz_target;
use object::elf::{FileHeader64, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, elf};
use unspool_libunwind_compat::core_file::CoreFile;
use unspool_libunwind_compat::sys::os::map_file;

fuzz_target!(|data: &[u8]| {
    let path = format!("/dev/shm/unspool-fuzz-core-{}", std::process::id());
    std::fs::write(&path, data).unwrap();
    let file = map_file(&CString::new(path.clone()).unwrap());
    std::fs::remove_file(path).unwrap();
    let Some(mut core) = file.ok().and_then(|file| CoreFile::new(file).ok()) else {
        return;
    };
    compare_memory(&core, data);
    for thread in 0..core.threads().min(16) {
        core.select(thread);
        let _ = (core.thread_id(), core.signal());
        // rip and rsp in `struct user_regs_struct`
        for register in [16, 19] {
            let Ok(ip) = core.register(8 * register) else {
                continue;
            };
            let _ = core.word(ip);
            if let Ok(info) = core.find_proc_info(ip) {
                assert!((info.start_ip..info.end_ip).contains(&ip));
            }
            let _ = core.function(ip, |_, _| Ok(()));
        }
    }
});

fn compare_memory(core: &CoreFile, data: &[u8]) {
    let Ok(header) = FileHeader64::<Endianness>::parse(data) else {
        return;
    };
    let endian = Endianness::Little;
    let Ok(segments) = header.program_headers(endian, data) else {
        return;
    };
    let loads = || {
        segments
            .iter()
            .filter(|segment| segment.p_type(endian) == PT_LOAD)
    };
    for addr in loads().map(|segment| segment.p_vaddr(endian)).take(64) {
        let covers = |segment: &&elf::ProgramHeader64<Endianness>| {
            let at = addr.checked_sub(segment.p_vaddr(endian));
            at.is_some_and(|at| at < segment.p_memsz(endian))
        };
        let Some(first) = loads().find(covers) else {
            continue;
        };
        let at = addr - first.p_vaddr(endian);
        if at
            .checked_add(8)
            .is_none_or(|end| end > first.p_filesz(endian))
        {
            continue;
        }
        let offset = first.p_offset(endian).checked_add(at);
        let offset = offset.and_then(|offset| usize::try_from(offset).ok());
        let expected = offset.and_then(|offset| data.get(offset..)?.first_chunk());
        let expected = expected.map(|word| u64::from_le_bytes(*word));
        assert_eq!(core.word(addr).ok(), expected, "{addr:#x}");
    }
}
