//! CIEs and FDEs: the entries of a section and their headers (DWARF 5 §6.4.1; LSB, "The
//! .eh_frame section").

use unspool_rows::arch::AddressSize;
use unspool_rows::{Pointer, Register, Vaddr};

use crate::byte_reader::ByteReader;
use crate::error::CfiError;
use crate::pointer::{PointerBases, PointerEncoding};
use crate::{CfiSection, SectionKind};

/// An entry of a section, its header not read yet.
#[derive(Debug, Clone)]
pub struct CfiEntry<'a> {
    /// The offset of its length field in the section, in bytes.
    pub offset: u64,
    /// The offset of its CIE; `None` for a CIE.
    pub cie: Option<u64>,
    body: ByteReader<'a>,
}

/// The entries of a section in the order of their bytes.
///
/// A zero length ends `.eh_frame` for a linear reader, but linkers leave such terminators in the
/// middle; they are skipped. A bad length ends the iteration, since the next entry cannot be found.
#[derive(Debug, Clone)]
pub struct CfiEntries<'s, 'a> {
    section: &'s CfiSection<'a>,
    at: u64,
}

impl<'a> CfiEntry<'a> {
    /// An entry. The caller has read its length and CIE pointer, and followed the latter: the whole
    /// section is not available. `body` begins behind the CIE pointer.
    #[must_use]
    pub fn new(offset: u64, cie: Option<u64>, body: ByteReader<'a>) -> Self {
        CfiEntry { offset, cie, body }
    }

    /// The offset of the first byte behind the entry.
    pub(crate) fn end(&self) -> u64 {
        self.body.end()
    }
}

impl<'a> CfiSection<'a> {
    /// The entries.
    #[must_use]
    pub fn entries(&self) -> CfiEntries<'_, 'a> {
        CfiEntries {
            section: self,
            at: 0,
        }
    }

    /// The entry with its length field at `offset`; `None` for a terminator.
    ///
    /// # Errors
    ///
    /// The length or the CIE pointer is bad.
    pub fn entry(&self, offset: u64) -> Result<Option<CfiEntry<'a>>, CfiError> {
        let end = self.data.len() as u64;
        let mut cursor = ByteReader::new(self.data, offset, end, self.abi.endian);
        let (length, is_64) = match cursor.unsigned(4)? {
            0xffff_ffff => (cursor.unsigned(8)?, true),
            reserved @ 0xffff_fff0.. => {
                let reserved = u32::try_from(reserved).unwrap_or(u32::MAX);
                return Err(CfiError::ReservedLength(reserved));
            }
            length => (length, false),
        };
        if length == 0 {
            return Ok(None);
        }
        let mut body = cursor
            .split(length)
            .map_err(|_| CfiError::Length { length, end })?;
        let id_offset = body.offset();
        let cie = match self.kind {
            // The CIE pointer of `.eh_frame` has 4 bytes, even if the length has 8 (LSB); it counts
            // back from itself. The LSB calls it unsigned, but libgcc and `readelf` read it as
            // signed: a CIE may follow its FDE.
            SectionKind::EhFrame => match body.signed(4)? {
                0 => None,
                back => Some(before(id_offset, back)?),
            },
            SectionKind::DebugFrame => match body.unsigned(if is_64 { 8 } else { 4 })? {
                0xffff_ffff if !is_64 => None,
                u64::MAX if is_64 => None,
                offset => Some(offset),
            },
        };
        Ok(Some(CfiEntry { offset, cie, body }))
    }
}

/// The offset `back` bytes before another.
fn before(offset: u64, back: i64) -> Result<u64, CfiError> {
    match offset.checked_add_signed(-back) {
        Some(cie) => Ok(cie),
        None => Err(CfiError::CieInFront(back.unsigned_abs() - offset)),
    }
}

impl<'a> Iterator for CfiEntries<'_, 'a> {
    type Item = (u64, Result<CfiEntry<'a>, CfiError>);

    fn next(&mut self) -> Option<Self::Item> {
        let end = self.section.data.len() as u64;
        loop {
            let offset = self.at;
            if offset >= end {
                return None;
            }
            match self.section.entry(offset) {
                Ok(Some(entry)) => {
                    self.at = entry.body.end();
                    return Some((offset, Ok(entry)));
                }
                Ok(None) => self.at = offset + 4,
                Err(error) => {
                    self.at = self.after(offset).unwrap_or(end);
                    return Some((offset, Err(error)));
                }
            }
        }
    }
}

impl CfiEntries<'_, '_> {
    /// The end of the entry at `offset`, if its length is plausible.
    fn after(&self, offset: u64) -> Option<u64> {
        let section = self.section;
        let end = section.data.len() as u64;
        let mut cursor = ByteReader::new(section.data, offset, end, section.abi.endian);
        let length = match cursor.unsigned(4).ok()? {
            0xffff_ffff => cursor.unsigned(8).ok()?,
            0xffff_fff0.. => return None,
            length => length,
        };
        cursor
            .offset()
            .checked_add(length)
            .filter(|next| *next <= end)
    }
}

/// A common information entry.
#[derive(Debug, Clone)]
pub struct Cie<'a> {
    /// The offset of its length field in the section, in bytes.
    pub offset: u64,
    /// The version: 1, 3 or 4.
    pub version: u8,
    /// The augmentation string.
    pub augmentation: &'a [u8],
    /// The factor of advances.
    pub code_alignment: u64,
    /// The factor of factored offsets.
    pub data_alignment: i64,
    /// The return-address column.
    pub return_address: Register,
    /// Frames of this CIE were interrupted by a signal (`S`).
    pub signal_frame: bool,
    /// Return addresses are signed with the B key (`B`, AArch64).
    pub b_key: bool,
    /// The encoding of addresses in its FDEs (`R`).
    pub address_encoding: PointerEncoding,
    /// The encoding of the LSDA pointer (`L`).
    pub lsda_encoding: PointerEncoding,
    /// The personality routine (`P`).
    pub personality: Option<Pointer>,
    /// The size of an address.
    pub address_size: AddressSize,
    /// Its FDEs begin with augmentation data (`z`).
    pub has_augmentation_data: bool,
    /// The first letter behind `z` that is unknown and skipped.
    pub unknown_letter: Option<u8>,
    /// The size of a segment selector before addresses, in bytes (version 4).
    pub segment_size: u8,
    /// The initial instructions.
    pub instructions: &'a [u8],
    /// The offset of the initial instructions in the section, in bytes.
    pub instructions_offset: u64,
}

impl<'a> Cie<'a> {
    /// Reads the CIE at `offset`.
    ///
    /// # Errors
    ///
    /// No CIE is there, or it is bad.
    pub fn parse_at(section: &CfiSection<'a>, offset: u64) -> Result<Self, CfiError> {
        match section.entry(offset) {
            Ok(Some(entry)) if entry.cie.is_none() => Cie::parse(section, entry),
            _ => Err(CfiError::NoCie(offset)),
        }
    }

    /// Reads the header of an entry that is a CIE.
    ///
    /// # Errors
    ///
    /// The CIE is bad.
    pub fn parse(section: &CfiSection<'a>, entry: CfiEntry<'a>) -> Result<Self, CfiError> {
        let mut body = entry.body;
        let version = body.u8()?;
        if !matches!(version, 1 | 3 | 4) {
            return Err(CfiError::Version(version));
        }
        let augmentation = body.string(MAX_AUGMENTATION_BYTES)?;
        let mut address_size = section.abi.arch.spec().address_size;
        if augmentation == b"eh" {
            body.read_word(address_size)?; // gcc 2.x: a pointer to exception tables, long unused
        }
        let mut segment_size = 0;
        if version == 4 {
            address_size = match body.u8()? {
                4 => AddressSize::W32,
                8 => AddressSize::W64,
                size => return Err(CfiError::AddressSize(size)),
            };
            segment_size = body.u8()?;
        }
        let mut cie = Cie {
            offset: entry.offset,
            version,
            augmentation,
            code_alignment: body.uleb()?,
            data_alignment: body.sleb()?,
            return_address: match version {
                1 => Register(u16::from(body.u8()?)),
                _ => body.register()?,
            },
            signal_frame: false,
            b_key: false,
            address_encoding: PointerEncoding::ABSOLUTE,
            lsda_encoding: PointerEncoding(OMITTED),
            personality: None,
            address_size,
            has_augmentation_data: false,
            unknown_letter: None,
            segment_size,
            instructions: &[],
            instructions_offset: 0,
        };
        cie.augment(section, &mut body)?;
        cie.instructions_offset = body.offset();
        cie.instructions = body.rest();
        Ok(cie)
    }

    /// Reads the augmentation data of these letters.
    fn augment(
        &mut self,
        section: &CfiSection<'a>,
        body: &mut ByteReader<'a>,
    ) -> Result<(), CfiError> {
        let letters = match self.augmentation {
            [] | b"eh" => return Ok(()),
            [b'z', letters @ ..] => letters,
            // Without `z` the start of the instructions cannot be found.
            [other, ..] => return Err(CfiError::Augmentation(char::from(*other))),
        };
        self.has_augmentation_data = true;
        let length = body.uleb()?;
        let mut data = body.split(length)?;
        let bases = PointerBases {
            section,
            address_size: self.address_size,
            function: None,
        };
        for letter in letters {
            if let (b'R' | b'L' | b'P', Some(unknown)) = (letter, self.unknown_letter) {
                // Its data follows that of the unknown letter, and the length of the latter is
                // unknown.
                return Err(CfiError::Augmentation(char::from(unknown)));
            }
            match letter {
                b'R' => self.address_encoding = PointerEncoding(data.u8()?),
                b'L' => self.lsda_encoding = PointerEncoding(data.u8()?),
                b'P' => {
                    let encoding = PointerEncoding(data.u8()?);
                    self.personality = bases.nullable(&mut data, encoding)?;
                }
                b'S' => self.signal_frame = true,
                b'B' => self.b_key = true,
                b'G' => {} // AArch64: the frame's memory is tagged; not relevant to unwinding
                other => {
                    self.unknown_letter.get_or_insert(*other);
                }
            }
        }
        Ok(())
    }
}

/// The maximum length of an augmentation string, in bytes. Look-ups of single entries read the
/// CIE's header for each FDE: without a bound that is not linear in the section.
pub const MAX_AUGMENTATION_BYTES: usize = 32;

const OMITTED: u8 = 0xff;

/// A frame description entry.
#[derive(Debug, Clone)]
pub struct ParsedFde<'a> {
    /// The offset of its length field in the section, in bytes.
    pub offset: u64,
    /// First address.
    pub start: Vaddr,
    /// One past the last address.
    pub end: Vaddr,
    /// The language-specific data area.
    pub lsda: Option<Pointer>,
    /// The instructions.
    pub instructions: &'a [u8],
    /// The offset of the instructions in the section, in bytes.
    pub instructions_offset: u64,
}

impl<'a> ParsedFde<'a> {
    /// Reads the header of an entry that is an FDE of `cie`.
    ///
    /// # Errors
    ///
    /// The FDE is bad.
    pub fn parse(
        section: &CfiSection<'a>,
        cie: &Cie<'a>,
        entry: CfiEntry<'a>,
    ) -> Result<Self, CfiError> {
        let mut body = entry.body;
        body.take(u64::from(cie.segment_size))?;
        let mut bases = PointerBases {
            section,
            address_size: cie.address_size,
            function: None,
        };
        let start = bases.address(&mut body, cie.address_encoding)?;
        let length = bases.length(&mut body, cie.address_encoding)?;
        // A range may end where the address space ends; it may not continue at address 0.
        let end = match start.0.checked_add(length) {
            Some(end) if end.saturating_sub(1) <= cie.address_size.mask() => Vaddr(end),
            _ => return Err(CfiError::Range { start, length }),
        };
        bases.function = Some(start);
        let mut lsda = None;
        if cie.has_augmentation_data {
            let length = body.uleb()?;
            let mut data = body.split(length)?;
            // An FDE may omit the pointer by having no data.
            if !data.is_empty() {
                lsda = bases.nullable(&mut data, cie.lsda_encoding)?;
            }
        }
        Ok(ParsedFde {
            offset: entry.offset,
            start,
            end,
            lsda,
            instructions: body.rest(),
            instructions_offset: body.offset(),
        })
    }
}
