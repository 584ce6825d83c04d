//! Encoded pointers (LSB, "DWARF Exception Header Encoding"). GCC also writes two values that the
//! LSB omits: 0x08, a signed word, and 0x80, a pointer to the pointer.

use unspool_rows::arch::AddressSize;
use unspool_rows::{Pointer, Vaddr};

use crate::CfiSection;
use crate::byte_reader::ByteReader;
use crate::error::CfiError;

/// A `DW_EH_PE` byte: the storage of a pointer, and its base.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PointerEncoding(pub u8);

const OMIT: u8 = 0xff;
const ALIGNED: u8 = 0x50;
/// A flag: the number is the address of a word that holds the pointer.
pub(crate) const INDIRECT: u8 = 0x80;

impl PointerEncoding {
    /// An address-sized number, absolute: the default of an entry.
    pub const ABSOLUTE: PointerEncoding = PointerEncoding(0);

    /// Four bytes, signed, relative to the data base (`DW_EH_PE_datarel | DW_EH_PE_sdata4`), as
    /// linkers write in search tables.
    pub const DATAREL_SDATA4: PointerEncoding = PointerEncoding(0x3b);

    /// Four bytes, signed, relative to their own address (`DW_EH_PE_pcrel | DW_EH_PE_sdata4`).
    pub const PCREL_SDATA4: PointerEncoding = PointerEncoding(0x1b);

    /// Four bytes, unsigned, absolute (`DW_EH_PE_udata4`): for counts.
    pub const UDATA4: PointerEncoding = PointerEncoding(0x03);

    /// Whether there is no pointer (`DW_EH_PE_omit`).
    #[must_use]
    pub(crate) fn is_omitted(self) -> bool {
        self.0 == OMIT
    }

    /// The same size and sign, without a base: the encoding of a range's length.
    #[must_use]
    pub fn length(self) -> PointerEncoding {
        PointerEncoding(if self.0 == ALIGNED { 0 } else { self.0 & 0x0f })
    }

    /// The size in bytes, if it is fixed.
    #[must_use]
    pub fn size(self, address_size: AddressSize) -> Option<u8> {
        match self.0 & 0x0f {
            0x0 | 0x8 => Some(address_size.bytes()),
            0x2 | 0xa => Some(2),
            0x3 | 0xb => Some(4),
            0x4 | 0xc => Some(8),
            _ => None,
        }
    }

    /// Takes the stored number, sign-extended if the encoding is signed.
    #[inline]
    fn number(
        self,
        reader: &mut ByteReader<'_>,
        address_size: AddressSize,
    ) -> Result<u64, CfiError> {
        match self.0 & 0x0f {
            0x0 => reader.read_word(address_size),
            0x1 => reader.uleb(),
            0x2 => reader.unsigned(2),
            0x3 => reader.unsigned(4),
            0x4 => reader.unsigned(8),
            0x8 => reader.signed(address_size.bytes()).map(i64::cast_unsigned),
            0x9 => reader.sleb().map(i64::cast_unsigned),
            0xa => reader.signed(2).map(i64::cast_unsigned),
            0xb => reader.signed(4).map(i64::cast_unsigned),
            0xc => reader.signed(8).map(i64::cast_unsigned),
            _ => Err(CfiError::Encoding(self.0)),
        }
    }
}

/// The possible bases of pointers while one entry is read.
#[derive(Debug, Clone, Copy)]
pub struct PointerBases<'s, 'a> {
    /// The section that contains the pointer.
    pub section: &'s CfiSection<'a>,
    /// The size of an address.
    pub address_size: AddressSize,
    /// The first address that the entry covers, once it is known (`DW_EH_PE_funcrel`).
    pub function: Option<Vaddr>,
}

impl PointerBases<'_, '_> {
    /// Takes a pointer that is always present: the start of a range. A stored zero is not null.
    ///
    /// # Errors
    ///
    /// [`CfiError::Encoding`], [`CfiError::NoBase`], or the field is truncated.
    #[inline]
    pub fn address(
        &self,
        reader: &mut ByteReader<'_>,
        encoding: PointerEncoding,
    ) -> Result<Vaddr, CfiError> {
        let (base, number) = self.parts(reader, encoding)?;
        Ok(Vaddr(base.wrapping_add(number) & self.address_size.mask()))
    }

    /// Takes a number without a base: the length of a range.
    ///
    /// # Errors
    ///
    /// [`CfiError::Encoding`], or the field is truncated.
    #[inline]
    pub fn length(
        &self,
        reader: &mut ByteReader<'_>,
        encoding: PointerEncoding,
    ) -> Result<u64, CfiError> {
        Ok(encoding.length().number(reader, self.address_size)? & self.address_size.mask())
    }

    /// Takes a pointer that may be null: a personality routine or an LSDA. A stored zero is null
    /// for any base.
    ///
    /// # Errors
    ///
    /// [`CfiError::Encoding`], [`CfiError::NoBase`], or the field is truncated.
    pub(crate) fn nullable(
        &self,
        reader: &mut ByteReader<'_>,
        encoding: PointerEncoding,
    ) -> Result<Option<Pointer>, CfiError> {
        if encoding.is_omitted() {
            return Ok(None);
        }
        let (base, number) = self.parts(reader, encoding)?;
        if number == 0 {
            return Ok(None);
        }
        let address = Vaddr(base.wrapping_add(number) & self.address_size.mask());
        Ok(Some(if encoding.0 & INDIRECT != 0 {
            Pointer::Indirect(address)
        } else {
            Pointer::Direct(address)
        }))
    }

    /// The base of the pointer, and the stored number.
    #[inline]
    fn parts(
        &self,
        reader: &mut ByteReader<'_>,
        encoding: PointerEncoding,
    ) -> Result<(u64, u64), CfiError> {
        if encoding.0 == ALIGNED {
            self.align(reader)?;
            return Ok((0, reader.read_word(self.address_size)?));
        }
        let no_base = CfiError::NoBase(encoding.0);
        let base = match encoding.0 & 0x70 {
            0x00 => Vaddr(0),
            0x10 => self.section.address.offset(reader.offset()),
            0x20 => self.section.text_base.ok_or(no_base)?,
            0x30 => self.section.data_base.ok_or(no_base)?,
            0x40 => self.function.ok_or(no_base)?,
            _ => return Err(CfiError::Encoding(encoding.0)),
        };
        Ok((base.0, encoding.number(reader, self.address_size)?))
    }

    /// `DW_EH_PE_aligned`: an absolute word at the next aligned address.
    fn align(&self, reader: &mut ByteReader<'_>) -> Result<(), CfiError> {
        let size = u64::from(self.address_size.bytes());
        let at = self.section.address.offset(reader.offset()).0;
        reader.take(at.wrapping_neg() % size).map(drop)
    }
}
