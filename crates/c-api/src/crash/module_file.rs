//! Checking whether a path still leads to the file that a module was loaded from.
//!
//! Packages are upgraded while programs run. The symbols of another build would give wrong names.

use unspool_files::raw::RawFile;

use super::bytes::{u16_at, u32_at, u64_at};
use super::modules::NamedModule;
use crate::sys::crash::maps;

/// Compares the build IDs, or without one the device and inode.
pub(super) fn is_file_of_module(file: &RawFile, module: &NamedModule<'_>) -> bool {
    match module.loaded.build_id {
        [] => {
            let mapped = maps::mapping_at(module.loaded.start);
            mapped.is_some_and(|mapped| Some(mapped.file) == file.status().map(|status| status.id))
        }
        build_id => has_build_id(file, build_id).is_some(),
    }
}

/// The maximum number of bytes to read of a segment of notes.
const MAX_NOTE_BYTES: usize = 1024;

fn has_build_id(file: &RawFile, build_id: &[u8]) -> Option<()> {
    const PT_NOTE: u32 = 4;
    let mut header = [0; 64];
    file.read_exact_at(0, &mut header)?;
    let (offset, count) = (u64_at(&header, 32)?, u16_at(&header, 56)?);
    (0..u64::from(count)).find_map(|number| {
        let mut header = [0; 56];
        file.read_exact_at(offset.checked_add(56 * number)?, &mut header)?;
        let size = usize::try_from(u64_at(&header, 32)?).ok()?;
        let mut notes = [0; MAX_NOTE_BYTES];
        let notes = notes.get_mut(..size.min(MAX_NOTE_BYTES))?;
        let is_read = u32_at(&header, 0)? == PT_NOTE
            && file.read_exact_at(u64_at(&header, 8)?, notes).is_some();
        (is_read && self::build_id(notes)? == build_id).then_some(())
    })
}

/// The build ID in notes.
fn build_id(mut notes: &[u8]) -> Option<&[u8]> {
    const NT_GNU_BUILD_ID: u32 = 3;
    loop {
        let size = |at| usize::try_from(u32_at(notes, at)?).ok();
        let (name, length) = (size(0)?, size(4)?);
        let content = 12_usize.checked_add(name.checked_next_multiple_of(4)?)?;
        let end = content.checked_add(length)?;
        if u32_at(notes, 8)? == NT_GNU_BUILD_ID && notes.get(12..)?.starts_with(b"GNU\0") {
            return notes.get(content..end);
        }
        notes = notes.get(end.checked_next_multiple_of(4)?..)?;
    }
}
