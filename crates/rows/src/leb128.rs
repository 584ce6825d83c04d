//! Variable-length integers (DWARF 5 §7.6), from a slice that shrinks as it is read.
//!
//! A number may be padded with bytes that add nothing to it, up to [`MAX_BYTES`].

/// The limit of bytes in a number. Ten hold 64 bits. Without a bound, one number could fill a
/// section and be read again for each entry that refers to it.
pub const MAX_BYTES: u32 = 32;

/// Takes the first byte.
#[inline]
pub fn byte(bytes: &mut &[u8]) -> Option<u8> {
    let (first, rest) = bytes.split_first()?;
    *bytes = rest;
    Some(*first)
}

/// Takes the first `len` bytes.
#[inline]
pub fn take<'a>(bytes: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (head, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(head)
}

/// Takes an unsigned LEB128 number; `None` when it is cut short, too long, or exceeds 64 bits.
#[inline]
pub fn unsigned(bytes: &mut &[u8]) -> Option<u64> {
    // Nearly all numbers have one byte.
    if let [number @ 0..0x80, rest @ ..] = *bytes {
        *bytes = rest;
        return Some(u64::from(*number));
    }
    unsigned_of_any_length(bytes)
}

fn unsigned_of_any_length(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    let mut shift = 0_u32;
    loop {
        let next = byte(bytes)?;
        let bits = u64::from(next & 0x7f);
        // Padding past 64 bits is legal as long as it carries no value.
        if shift >= 64 {
            if bits != 0 {
                return None;
            }
        } else {
            if shift == 63 && bits > 1 {
                return None;
            }
            value |= bits << shift;
        }
        if next & 0x80 == 0 {
            return Some(value);
        }
        shift = next_shift(shift)?;
    }
}

/// The position of the next byte's bits; `None` after [`MAX_BYTES`].
fn next_shift(shift: u32) -> Option<u32> {
    Some(shift + 7).filter(|shift| *shift < 7 * MAX_BYTES)
}

/// Takes a signed LEB128 number; `None` when it is cut short, too long, or exceeds 64 bits.
#[inline]
pub fn signed(bytes: &mut &[u8]) -> Option<i64> {
    // Nearly all numbers have one byte or two. The highest of the last byte's seven bits is the
    // sign.
    match *bytes {
        [number @ 0..0x80, rest @ ..] => {
            *bytes = rest;
            Some(i64::from((number << 1).cast_signed() >> 1))
        }
        [low @ 0x80..=0xff, high @ 0..0x80, rest @ ..] => {
            *bytes = rest;
            let high = i64::from((high << 1).cast_signed() >> 1);
            Some(high << 7 | i64::from(low & 0x7f))
        }
        _ => signed_of_any_length(bytes),
    }
}

fn signed_of_any_length(bytes: &mut &[u8]) -> Option<i64> {
    let mut value = 0_i64;
    let mut shift = 0_u32;
    loop {
        let next = byte(bytes)?;
        let bits = i64::from(next & 0x7f);
        if shift < 63 {
            value |= bits << shift;
        } else {
            // Only the sign is left: all further bits repeat it.
            if bits != 0 && bits != 0x7f {
                return None;
            }
            if shift == 63 {
                value |= bits << 63;
            }
        }
        if next & 0x80 == 0 {
            if shift < 57 && next & 0x40 != 0 {
                value |= -1 << (shift + 7);
            }
            return Some(value);
        }
        shift = next_shift(shift)?;
    }
}

#[cfg(feature = "alloc")]
pub use write::{put_signed, put_unsigned};

#[cfg(feature = "alloc")]
mod write {
    use alloc::vec::Vec;

    /// Appends an unsigned LEB128 number in its shortest form.
    pub fn put_unsigned(out: &mut Vec<u8>, mut value: u64) {
        loop {
            let low = value.to_le_bytes()[0] & 0x7f;
            value >>= 7;
            if value == 0 {
                return out.push(low);
            }
            out.push(low | 0x80);
        }
    }

    /// Appends a signed LEB128 number in its shortest form.
    pub fn put_signed(out: &mut Vec<u8>, mut value: i64) {
        loop {
            let low = value.to_le_bytes()[0] & 0x7f;
            value >>= 7;
            let sign = low & 0x40 != 0;
            if (value == 0 && !sign) || (value == -1 && sign) {
                return out.push(low);
            }
            out.push(low | 0x80);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(feature = "alloc")]
    use std::vec::Vec;

    #[cfg(feature = "alloc")]
    #[test]
    fn agrees_with_gimli_on_edges() {
        let numbers = [
            0,
            1,
            63,
            64,
            127,
            128,
            0x3fff,
            0x4000,
            u64::MAX / 2,
            u64::MAX,
        ];
        for n in numbers {
            let mut out = Vec::new();
            put_unsigned(&mut out, n);
            let mut ours = out.as_slice();
            assert_eq!(unsigned(&mut ours), Some(n));
            assert!(ours.is_empty());
            let mut theirs = gimli::EndianSlice::new(&out, gimli::LittleEndian);
            assert_eq!(gimli::Reader::read_uleb128(&mut theirs), Ok(n));

            for n in [n.cast_signed(), n.cast_signed().wrapping_neg()] {
                let mut out = Vec::new();
                put_signed(&mut out, n);
                let mut ours = out.as_slice();
                assert_eq!(signed(&mut ours), Some(n));
                assert!(ours.is_empty());
                let mut theirs = gimli::EndianSlice::new(&out, gimli::LittleEndian);
                assert_eq!(gimli::Reader::read_sleb128(&mut theirs), Ok(n));
            }
        }
    }

    #[test]
    fn truncated_or_oversized_numbers_are_refused() {
        assert_eq!(unsigned(&mut &[0x80][..]), None);
        assert_eq!(signed(&mut &[0xff][..]), None);
        assert_eq!(unsigned(&mut &[0xff; 11][..]), None);
        let mut too_big = [0xff; 10];
        too_big[9] = 0x02;
        assert_eq!(unsigned(&mut &too_big[..]), None);
    }

    #[test]
    fn padding_is_legal_within_a_bound() {
        assert_eq!(unsigned(&mut &[0x81, 0x80, 0x00][..]), Some(1));
        assert_eq!(signed(&mut &[0xff, 0xff, 0x7f][..]), Some(-1));
        for (len, is_legal) in [(31, true), (32, true), (33, false)] {
            let mut one = std::vec![0x80; len];
            (one[0], one[len - 1]) = (0x81, 0x00);
            assert_eq!(unsigned(&mut one.as_slice()), is_legal.then_some(1));
            let mut minus_one = std::vec![0xff; len];
            minus_one[len - 1] = 0x7f;
            assert_eq!(signed(&mut minus_one.as_slice()), is_legal.then_some(-1));
        }
    }
}
