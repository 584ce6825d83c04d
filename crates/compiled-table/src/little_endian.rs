//! Little-endian numbers at an index of a byte array: all reads of the format use these.

/// The 16-bit number at `index`, counted in 16-bit numbers.
#[inline]
pub(crate) fn u16_at(bytes: &[u8], index: usize) -> Option<u16> {
    let at = index.checked_mul(2)?;
    let two = bytes.get(at..)?.first_chunk::<2>()?;
    Some(u16::from_le_bytes(*two))
}

/// The low 16 bits.
#[inline]
pub(crate) const fn low_u16(number: u64) -> u16 {
    let [b0, b1, ..] = number.to_le_bytes();
    u16::from_le_bytes([b0, b1])
}

/// The 32-bit number at `index`, counted in 32-bit numbers.
#[inline]
pub(crate) fn u32_at(bytes: &[u8], index: usize) -> Option<u32> {
    let at = index.checked_mul(4)?;
    let four = bytes.get(at..)?.first_chunk::<4>()?;
    Some(u32::from_le_bytes(*four))
}

/// The number of `width` bytes (2 to 4) at the byte offset `at`. A table has one width, so the
/// branch is predictable.
#[inline]
pub(crate) fn narrow(bytes: &[u8], at: usize, width: usize) -> Option<usize> {
    let rest = bytes.get(at..)?;
    let number = match width {
        2 => u16::from_le_bytes(*rest.first_chunk()?).into(),
        3 => {
            let [b0, b1, b2] = *rest.first_chunk()?;
            u32::from_le_bytes([b0, b1, b2, 0])
        }
        _ => u32::from_le_bytes(*rest.first_chunk()?),
    };
    Some(number as usize)
}

/// The 64-bit number at the byte offset `at`.
#[inline]
pub(crate) fn u64_from(bytes: &[u8], at: usize) -> Option<u64> {
    bytes
        .get(at..)?
        .first_chunk::<8>()
        .map(|eight| u64::from_le_bytes(*eight))
}

/// The number of leading indices in `low..high` for which `before` holds, plus `low`: binary
/// search in an array that is sorted, a bounded walk in one that is not.
#[inline]
pub(crate) fn partition(low: usize, high: usize, before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut len) = (low, high.saturating_sub(low));
    while len > 0 {
        let half = len / 2;
        if before(low + half) {
            low += half + 1;
            len -= half + 1;
        } else {
            len = half;
        }
    }
    low
}
