//! Numbers in bytes, in either byte order.

/// The order of the bytes of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Endian {
    /// The lowest first.
    #[default]
    Little,
    /// The highest first.
    Big,
}

impl Endian {
    /// The number at a place; `None` if it is not all there.
    pub(crate) fn u16(self, bytes: &[u8], at: usize) -> Option<u16> {
        let bytes = *bytes.get(at..)?.first_chunk()?;
        Some(match self {
            Endian::Little => u16::from_le_bytes(bytes),
            Endian::Big => u16::from_be_bytes(bytes),
        })
    }

    /// The number at a place; `None` if it is not all there.
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

/// The number at a place, lowest byte first; `None` if it is not all there.
pub(crate) fn little_u64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// A place in memory for a size that a file claims.
pub(crate) fn size(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// A size of something in memory, as files have it.
pub(crate) fn wide(size: usize) -> u64 {
    u64::try_from(size).unwrap_or(u64::MAX)
}
