//! Numbers in bytes, in either byte order; and names.

use std::borrow::Cow;

/// The byte order of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Endian {
    /// Little-endian.
    #[default]
    Little,
    /// Big-endian.
    Big,
}

impl Endian {
    /// The number at an offset; `None` if it is truncated.
    pub(crate) fn u16(self, bytes: &[u8], at: usize) -> Option<u16> {
        let bytes = *bytes.get(at..)?.first_chunk()?;
        Some(match self {
            Endian::Little => u16::from_le_bytes(bytes),
            Endian::Big => u16::from_be_bytes(bytes),
        })
    }

    /// The number at an offset; `None` if it is truncated.
    pub(crate) fn u32(self, bytes: &[u8], at: usize) -> Option<u32> {
        let bytes = *bytes.get(at..)?.first_chunk()?;
        Some(match self {
            Endian::Little => u32::from_le_bytes(bytes),
            Endian::Big => u32::from_be_bytes(bytes),
        })
    }

    /// A number's bytes.
    pub(crate) fn u16_bytes(self, number: u16) -> [u8; 2] {
        match self {
            Endian::Little => number.to_le_bytes(),
            Endian::Big => number.to_be_bytes(),
        }
    }

    /// A number's bytes.
    pub(crate) fn u32_bytes(self, number: u32) -> [u8; 4] {
        match self {
            Endian::Little => number.to_le_bytes(),
            Endian::Big => number.to_be_bytes(),
        }
    }
}

/// The little-endian number at an offset; `None` if it is truncated.
pub(crate) fn little_u64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The limit of a name's length. Names may overlap: a file of a megabyte can have a hundred thousand
/// of them, each nearly as long as the file.
const MAX_NAME_BYTES: usize = 4096;
/// The same if a name is not UTF-8, and so must be copied.
const MAX_WRONG_NAME_BYTES: usize = 256;

/// The zero-terminated name at the start of some bytes, cut if it is too long. Invalid UTF-8 is
/// replaced. `None` without a zero.
pub(crate) fn name(bytes: &[u8]) -> Option<Cow<'_, str>> {
    let start = bytes.get(..MAX_NAME_BYTES).unwrap_or(bytes);
    let name = match start.iter().position(|byte| *byte == 0) {
        Some(end) => start.get(..end)?,
        None if start.len() < bytes.len() => start,
        None => return None,
    };
    Some(match str::from_utf8(name) {
        Ok(name) => name.into(),
        Err(_) => {
            let start = name.get(..MAX_WRONG_NAME_BYTES).unwrap_or(name);
            String::from_utf8_lossy(start).into_owned().into()
        }
    })
}

/// A size claimed by a file as a `usize`, saturating.
pub(crate) fn size(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// A size in memory as a number of files.
pub(crate) fn wide(size: usize) -> u64 {
    u64::try_from(size).unwrap_or(u64::MAX)
}
