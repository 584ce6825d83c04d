//! Mapping a file into memory: the one `unsafe` operation of this crate.
#![expect(
    unsafe_code,
    reason = "a memory map is only as stable as the file beneath it"
)]

use std::fs::File;
use std::io;

use memmap2::Mmap;

/// Maps all of `file`, read-only and private.
///
/// If another process truncates the file while it is mapped, reading the lost pages raises
/// `SIGBUS`; if it overwrites the file in place, the bytes change. Package managers and linkers
/// replace files by renaming, which does neither. Small files are read instead of mapped.
pub(crate) fn map(file: &File) -> io::Result<Mmap> {
    // SAFETY: the map is read-only and only ever seen as `&[u8]` by parsers that check every
    // bound and assume nothing that an earlier read established about the bytes, so a change
    // beneath them can give a wrong result, but no invalid reference. That the file is not
    // truncated beneath the map is the documented condition above.
    unsafe { Mmap::map(file) }
}
