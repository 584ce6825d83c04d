//! The file: blocks, each with rows of one table, in columns. `docs/formats.md` specifies it.
//!
//! [`block`] has the framing of blocks, [`column`] the encoding of numbers and strings, and
//! [`rows`] the columns of each table, reading beside writing.

pub(crate) mod block;
pub(crate) mod column;
pub(crate) mod rows;
pub(crate) mod table;

/// The first bytes of a profile.
pub const MAGIC: [u8; 8] = *b"unsprof\0";

/// The version that is written, and the only one accepted.
pub(crate) const VERSION: u16 = 1;

/// The length of a file's header in bytes: magic, version, and 6 reserved bytes.
pub(crate) const HEADER: usize = 16;

/// The header of a file.
pub(crate) fn header() -> [u8; HEADER] {
    let mut header = [0; HEADER];
    for (into, byte) in header
        .iter_mut()
        .zip(MAGIC.into_iter().chain(VERSION.to_le_bytes()))
    {
        *into = byte;
    }
    header
}
