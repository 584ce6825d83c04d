//! The bytes of a variable.

/// A variable's value as far as known: the requested number of bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartialValue {
    /// The bytes, in the order of memory.
    pub bytes: Vec<u8>,
    /// The mask of known bits for each byte: parts of a structure can be unavailable. At least one
    /// bit is known, if there are any.
    pub known: Vec<u8>,
}

impl PartialValue {
    /// A value of `size` unknown bytes.
    pub(super) fn unknown(size: usize) -> PartialValue {
        PartialValue {
            bytes: vec![0; size],
            known: vec![0; size],
        }
    }

    /// Sets the first bytes, up to its size.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.put_bits(0, bytes, 0, bytes.len() as u64 * 8);
    }

    /// Sets `count` bits from `at` to the bits of `bytes` from `first`, up to both ends. The lowest
    /// bit of the first byte is bit 0.
    pub(super) fn put_bits(&mut self, at: u64, bytes: &[u8], first: u64, count: u64) {
        for nth in 0..count {
            let bit = |index: u64| {
                let byte = usize::try_from(index / 8).ok()?;
                Some((byte, 1_u8 << (index % 8)))
            };
            let from = first.checked_add(nth).and_then(bit);
            let to = at.checked_add(nth).and_then(bit);
            let (Some((from, mask)), Some((to, place))) = (from, to) else {
                return;
            };
            let byte = (
                bytes.get(from),
                self.bytes.get_mut(to),
                self.known.get_mut(to),
            );
            let (Some(byte), Some(into), Some(known)) = byte else {
                return;
            };
            *into = match byte & mask {
                0 => *into & !place,
                _ => *into | place,
            };
            *known |= place;
        }
    }

    /// Whether any part is known, if it has any.
    #[must_use]
    pub fn has_known_part(&self) -> bool {
        self.known.is_empty() || self.known.iter().any(|known| *known != 0)
    }

    /// Whether all of it is known.
    pub(super) fn is_fully_known(&self) -> bool {
        self.known.iter().all(|known| *known == 0xff)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_put_where_they_belong() {
        let mut value = PartialValue::unknown(3);
        value.put_bits(6, &[0b1010_1100, 0b11], 2, 8);
        // Bits 2 to 9 of the source are 1101_0101, the lowest first.
        assert_eq!(value.bytes, [0b1100_0000, 0b0011_1010, 0]);
        assert_eq!(value.known, [0b1100_0000, 0b0011_1111, 0]);
        value.put_bits(22, &[0xff], 0, 100);
        assert_eq!(value.known, [0b1100_0000, 0b0011_1111, 0b1100_0000]);
        value.put_bits(u64::MAX, &[0xff], u64::MAX, 2);
        value.put(&[1]);
        assert_eq!((value.bytes[0], value.known[0]), (1, 0xff));
    }
}
