//! Any bytes as an archive or a compressed file: unpacking ends without panic, each member has a
//! header of its own, and where the `object` crate reads all members, none is left out.
#![no_main]

use libfuzzer_sys::fuzz_target;
use object::read::archive::ArchiveFile;
use unspool_elf::Container;

/// The size of a member's header.
const HEADER_BYTES: usize = 60;

fuzz_target!(|data: &[u8]| {
    let Ok(Container::Archive(members)) = Container::from_bytes("lib.a", data.to_vec()) else {
        return;
    };
    assert!(members.len() * HEADER_BYTES <= data.len());
    for member in members.iter().flatten() {
        assert!(member.sections().count() <= data.len());
    }
    let Ok(archive) = ArchiveFile::parse(data) else {
        return;
    };
    let parts: Result<Vec<&[u8]>, _> = archive.members().map(|it| it?.data(data)).collect();
    if let Ok(parts) = parts {
        let elf_files = parts.iter().filter(|part| part.starts_with(b"\x7fELF"));
        assert!(elf_files.count() <= members.len());
    }
});
