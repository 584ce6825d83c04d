//! Numbers in bytes, in either byte order.

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

/// A size claimed by a file as a `usize`, saturating.
pub(crate) fn size(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// A size in memory as a number of files.
pub(crate) fn wide(size: usize) -> u64 {
    u64::try_from(size).unwrap_or(u64::MAX)
}
