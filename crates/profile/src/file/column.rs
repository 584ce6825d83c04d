//! Columns: numbers and strings of one kind, in sequence.

use unspool_rows::leb128;

/// A column to write.
#[derive(Debug, Default)]
pub(crate) struct ColumnWriter {
    bytes: Vec<u8>,
    last: u64,
}

/// The most bytes of a string. Longer ones are truncated.
pub(crate) const MAX_STRING_BYTES: usize = 1 << 16;

impl ColumnWriter {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.last = 0;
    }

    /// A number, as unsigned LEB128.
    pub(crate) fn number(&mut self, value: impl Into<u64>) {
        leb128::put_unsigned(&mut self.bytes, value.into());
    }

    /// A number as its difference from the previous one in this block, modulo 2^64, as signed
    /// LEB128.
    pub(crate) fn delta(&mut self, value: impl Into<u64>) {
        let value = value.into();
        let difference = value.wrapping_sub(self.last).cast_signed();
        leb128::put_signed(&mut self.bytes, difference);
        self.last = value;
    }

    /// Bytes, after their length.
    pub(crate) fn string(&mut self, bytes: &[u8]) {
        let bytes = bytes.get(..MAX_STRING_BYTES).unwrap_or(bytes);
        self.number(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }
}

/// A column to read.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ColumnReader<'a> {
    bytes: &'a [u8],
    last: u64,
}

impl<'a> ColumnReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> ColumnReader<'a> {
        ColumnReader { bytes, last: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn number(&mut self) -> Option<u64> {
        leb128::unsigned(&mut self.bytes)
    }

    /// A number that must fit the type.
    pub(crate) fn small<T: TryFrom<u64>>(&mut self) -> Option<T> {
        T::try_from(self.number()?).ok()
    }

    pub(crate) fn delta(&mut self) -> Option<u64> {
        let difference = leb128::signed(&mut self.bytes)?;
        self.last = self.last.wrapping_add(difference.cast_unsigned());
        Some(self.last)
    }

    /// The same for a number that must fit the type.
    pub(crate) fn small_delta<T: TryFrom<u64>>(&mut self) -> Option<T> {
        T::try_from(self.delta()?).ok()
    }

    pub(crate) fn string(&mut self) -> Option<&'a [u8]> {
        let length = self.small()?;
        leb128::take(&mut self.bytes, length)
    }

    /// A string to display; invalid UTF-8 is replaced.
    pub(crate) fn text(&mut self) -> Option<String> {
        Some(String::from_utf8_lossy(self.string()?).into_owned())
    }
}
