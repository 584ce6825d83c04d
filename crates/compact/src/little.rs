//! Little-endian numbers at an index of a byte array: the whole of how the format is read.

/// The 16-bit number at `index`, counted in 16-bit numbers.
#[inline]
pub(crate) fn u16_at(bytes: &[u8], index: usize) -> Option<u16> {
    let at = index.checked_mul(2)?;
    let two = bytes.get(at..)?.first_chunk::<2>()?;
    Some(u16::from_le_bytes(*two))
}

/// The 32-bit number at `index`, counted in 32-bit numbers.
#[inline]
pub(crate) fn u32_at(bytes: &[u8], index: usize) -> Option<u32> {
    let at = index.checked_mul(4)?;
    let four = bytes.get(at..)?.first_chunk::<4>()?;
    Some(u32::from_le_bytes(*four))
}

/// The number of `width` bytes (2 to 4) at the byte offset `at`.
#[inline]
pub(crate) fn narrow(bytes: &[u8], at: usize, width: usize) -> Option<usize> {
    let field = bytes.get(at..)?.get(..width)?;
    Some(
        field
            .iter()
            .rev()
            .fold(0, |value, byte| value << 8 | usize::from(*byte)),
    )
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

/// How many of the 16-bit numbers from `low` up to `high` (indices) satisfy `test`. `None` where
/// there are no such indices, or more than a bucket can have.
///
/// A sum without branches on the numbers: for the few elements of a bucket faster than a search.
#[inline]
pub(crate) fn count_u16(
    bytes: &[u8],
    low: usize,
    high: usize,
    test: impl Fn(u16) -> bool,
) -> Option<usize> {
    const FEW: usize = 16;
    /// A piece at each address of a bucket of 4 KiB; buckets of steps have fewer.
    const MOST: usize = 4096;
    let wanted = high.checked_sub(low)?;
    let rest = bytes.get(low.checked_mul(2)?..)?;
    // Nearly always there are few, and as many again behind them: one pass of fixed length.
    if wanted <= FEW
        && let Some(few) = rest.first_chunk::<{ 2 * FEW }>()
    {
        let (numbers, _) = few.as_chunks::<2>();
        let counted = numbers.iter().zip(0_u16..).map(|(number, at)| {
            let is_wanted = usize::from(at) < wanted;
            u16::from(is_wanted & test(u16::from_le_bytes(*number)))
        });
        return Some(usize::from(counted.sum::<u16>()));
    }
    if wanted > MOST {
        return None;
    }
    let (numbers, _) = rest.get(..wanted * 2)?.as_chunks::<2>();
    Some(
        numbers
            .iter()
            .filter(|number| test(u16::from_le_bytes(**number)))
            .count(),
    )
}
