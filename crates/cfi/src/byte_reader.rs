//! Reading numbers from a section, with the offset for error messages.

use unspool_rows::arch::{AddressSize, Endian};
use unspool_rows::{Register, leb128};

use crate::error::CfiError;

/// A position in a section, and the end of the readable bytes.
#[derive(Debug, Clone)]
pub struct ByteReader<'a> {
    rest: &'a [u8],
    end: u64,
    endian: Endian,
}

/// An unsigned number of at most 8 bytes.
#[inline]
pub(crate) fn number(bytes: &[u8], endian: Endian) -> u64 {
    let append = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
    match endian {
        Endian::Little => bytes.iter().rev().fold(0, append),
        Endian::Big => bytes.iter().fold(0, append),
    }
}

impl<'a> ByteReader<'a> {
    /// Reads `data` between two offsets; bytes outside of it are cut off.
    #[must_use]
    pub fn new(data: &'a [u8], start: u64, end: u64, endian: Endian) -> Self {
        let len = data.len() as u64;
        let (start, end) = (start.min(len), end.min(len));
        let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
        let rest = data.get(at(start)..at(end)).unwrap_or_default();
        ByteReader {
            rest,
            end: start.max(end),
            endian,
        }
    }

    /// The offset of the next byte in the section.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.end - self.rest.len() as u64
    }

    /// The end of the readable bytes, as an offset in the section.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Whether no bytes are left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Drops the remaining bytes.
    pub fn clear(&mut self) {
        self.rest = &[];
    }

    /// The remaining bytes.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[cold]
    fn truncated(&self) -> CfiError {
        CfiError::Truncated {
            offset: self.offset(),
            end: self.end,
        }
    }

    /// Takes `len` bytes.
    ///
    /// # Errors
    ///
    /// [`CfiError::Truncated`].
    #[inline]
    pub fn take(&mut self, len: u64) -> Result<&'a [u8], CfiError> {
        usize::try_from(len)
            .ok()
            .and_then(|len| leb128::take(&mut self.rest, len))
            .ok_or_else(|| self.truncated())
    }

    /// Takes one byte.
    ///
    /// # Errors
    ///
    /// [`CfiError::Truncated`].
    pub(crate) fn u8(&mut self) -> Result<u8, CfiError> {
        leb128::byte(&mut self.rest).ok_or_else(|| self.truncated())
    }

    /// Takes an unsigned number of `size` bytes, at most 8.
    ///
    /// # Errors
    ///
    /// [`CfiError::Truncated`].
    #[inline]
    pub(crate) fn unsigned(&mut self, size: u8) -> Result<u64, CfiError> {
        let bytes = self.take(u64::from(size.min(8)))?;
        Ok(number(bytes, self.endian))
    }

    /// Takes a signed number of `size` bytes (1 to 8), sign-extended.
    ///
    /// # Errors
    ///
    /// [`CfiError::Truncated`].
    pub(crate) fn signed(&mut self, size: u8) -> Result<i64, CfiError> {
        let unused = 64 - 8 * u32::from(size.clamp(1, 8));
        Ok((self.unsigned(size)? << unused).cast_signed() >> unused)
    }

    /// Takes an address-sized number.
    ///
    /// # Errors
    ///
    /// [`CfiError::Truncated`].
    pub(crate) fn read_word(&mut self, address_size: AddressSize) -> Result<u64, CfiError> {
        self.unsigned(address_size.bytes())
    }

    /// Takes an unsigned LEB128 number.
    ///
    /// # Errors
    ///
    /// [`CfiError::Number`].
    pub fn uleb(&mut self) -> Result<u64, CfiError> {
        let offset = self.offset();
        leb128::unsigned(&mut self.rest).ok_or(CfiError::Number { offset })
    }

    /// Takes a signed LEB128 number.
    ///
    /// # Errors
    ///
    /// [`CfiError::Number`].
    pub fn sleb(&mut self) -> Result<i64, CfiError> {
        let offset = self.offset();
        leb128::signed(&mut self.rest).ok_or(CfiError::Number { offset })
    }

    /// Takes a register number.
    ///
    /// # Errors
    ///
    /// [`CfiError::Number`], [`CfiError::Register`].
    pub(crate) fn register(&mut self) -> Result<Register, CfiError> {
        let number = self.uleb()?;
        u16::try_from(number)
            .map(Register)
            .map_err(|_| CfiError::Register(number))
    }

    /// Takes a string of at most `most` bytes, and its terminating zero byte. Returns it without
    /// the zero.
    ///
    /// # Errors
    ///
    /// [`CfiError::Truncated`], [`CfiError::TooLong`].
    pub(crate) fn string(&mut self, most: usize) -> Result<&'a [u8], CfiError> {
        let offset = self.offset();
        let mut looked_at = self.rest.iter().take(most.saturating_add(1));
        let len = looked_at
            .position(|byte| *byte == 0)
            .ok_or(match self.rest.len() {
                len if len <= most => self.truncated(),
                _ => CfiError::TooLong { offset, most },
            })?;
        let string = self.take(len as u64)?;
        self.u8()?;
        Ok(string)
    }

    /// Takes `len` bytes as a reader of their own.
    ///
    /// # Errors
    ///
    /// [`CfiError::Truncated`].
    pub(crate) fn split(&mut self, len: u64) -> Result<ByteReader<'a>, CfiError> {
        let rest = self.take(len)?;
        Ok(ByteReader {
            rest,
            end: self.offset(),
            endian: self.endian,
        })
    }
}
