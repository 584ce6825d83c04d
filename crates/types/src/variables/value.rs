//! The bytes of a variable.

/// What is known of a variable: its bytes, as many of them as were asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// The bytes, in the order of memory.
    pub bytes: Vec<u8>,
    /// Whether each of them is known: parts of a structure can be nowhere. At least one is.
    pub known: Vec<bool>,
}

impl Value {
    /// A value of so many bytes, none of which is known.
    pub(super) fn unknown(size: usize) -> Value {
        Value {
            bytes: vec![0; size],
            known: vec![false; size],
        }
    }

    /// Fills in bytes at an offset, as far as there is room.
    pub(super) fn put(&mut self, offset: usize, bytes: &[u8]) {
        let places = self.bytes.iter_mut().zip(&mut self.known).skip(offset);
        for ((place, known), byte) in places.zip(bytes) {
            *place = *byte;
            *known = true;
        }
    }

    /// Whether all bytes are known.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.known.iter().all(|known| *known)
    }
}
