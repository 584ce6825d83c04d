//! Sections read in place, without allocating.

use unspool_rows::{Endian, Register, Vaddr};

use super::error::SframeError;
use super::frame::{
    FrameRowEntry, FreBase, FreContents, FreRules, FreValue, SframeAbi, SframeVersion,
};
use crate::byte_reader::ByteReader;

const MAGIC: u16 = 0xdee2;

/// `SFRAME_F_FDE_SORTED`.
const SORTED: u8 = 1;
/// `SFRAME_F_FDE_FUNC_START_PCREL`.
const RELATIVE_TO_FIELD: u8 = 4;

/// Size of a header without the auxiliary one, in bytes.
const HEADER: u64 = 28;

/// A header (`sframe_header`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SframeHeader {
    /// The version.
    pub version: SframeVersion,
    /// The raw flags.
    pub flags: u8,
    /// The machine.
    pub abi: SframeAbi,
    /// The fixed offset of the saved frame pointer from the CFA, in bytes; 0 if it has none.
    pub fixed_frame_pointer: i8,
    /// The same for the return address.
    pub fixed_return_address: i8,
    /// Size of the auxiliary header in bytes.
    pub auxiliary: u8,
    /// The number of entries.
    pub fdes: u32,
    /// The number of rows.
    pub fres: u32,
    /// The size of all rows in bytes.
    pub fre_bytes: u32,
    /// The offset of the entries from the end of the headers, in bytes.
    pub fde_offset: u32,
    /// The offset of the rows from the end of the headers, in bytes.
    pub fre_offset: u32,
}

impl SframeHeader {
    /// Whether the entries ascend by the header's flags.
    #[must_use]
    pub fn is_sorted(&self) -> bool {
        self.flags & SORTED != 0
    }

    /// Whether a start is relative to its own field, not to the header.
    ///
    /// GNU as 2.40 to 2.44 writes them so without setting the flag (binutils PR 32666). A linker's
    /// output is sorted, and relative to the header.
    fn starts_are_relative_to_fields(&self) -> bool {
        let is_of_assembler = self.version < SframeVersion::V3 && !self.is_sorted();
        self.flags & RELATIVE_TO_FIELD != 0 || is_of_assembler
    }

    /// The size of both headers in bytes.
    fn bytes(&self) -> u64 {
        HEADER + u64::from(self.auxiliary)
    }

    fn entries(&self) -> u64 {
        self.bytes() + u64::from(self.fde_offset)
    }

    fn rows(&self) -> u64 {
        self.bytes() + u64::from(self.fre_offset)
    }

    /// The end of the part, in bytes from its start.
    fn end(&self) -> u64 {
        let entries = self.entries() + u64::from(self.fdes) * u64::from(self.version.fde_bytes());
        entries.max(self.rows() + u64::from(self.fre_bytes))
    }
}

/// A header and its entries and rows: a section as an assembler or a linker makes it.
#[derive(Debug, Clone, Copy)]
pub struct SubSection<'a> {
    /// All bytes of the section up to the end of this part.
    data: &'a [u8],
    /// The address of the section's first byte.
    section: Vaddr,
    /// The offset of the part in the section.
    pub offset: u64,
    /// Its header.
    pub header: SframeHeader,
    endian: Endian,
}

/// The parts of a section: one, unless a linker has concatenated its input sections.
#[derive(Debug, Clone)]
pub struct SubSections<'a> {
    data: &'a [u8],
    section: Vaddr,
    at: u64,
}

impl<'a> SubSections<'a> {
    /// The parts of a section with its first byte at that address.
    #[must_use]
    pub fn new(data: &'a [u8], address: Vaddr) -> SubSections<'a> {
        SubSections {
            data,
            section: address,
            at: 0,
        }
    }

    fn rest(&self) -> &'a [u8] {
        let at = usize::try_from(self.at).unwrap_or(usize::MAX);
        self.data.get(at..).unwrap_or_default()
    }

    /// Skips the zeros between parts.
    fn skip_padding(&mut self) {
        let zeros = self.rest().iter().take_while(|byte| **byte == 0).count();
        self.at += zeros as u64;
    }

    fn part(&self) -> Result<SubSection<'a>, SframeError> {
        let magic = self.rest().first_chunk().copied().unwrap_or_default();
        let endian = match (u16::from_le_bytes(magic), u16::from_be_bytes(magic)) {
            (MAGIC, _) => Endian::Little,
            (_, MAGIC) => Endian::Big,
            (other, _) => return Err(SframeError::Magic(other)),
        };
        let len = self.data.len() as u64;
        let mut cursor = ByteReader::new(self.data, self.at, len, endian);
        let header = header(&mut cursor)?;
        if header.abi.abi().endian != endian {
            return Err(SframeError::OtherMachine(header.abi.number()));
        }
        let end = usize::try_from(self.at.saturating_add(header.end())).unwrap_or(usize::MAX);
        Ok(SubSection {
            data: self.data.get(..end).unwrap_or(self.data),
            section: self.section,
            offset: self.at,
            header,
            endian,
        })
    }
}

impl<'a> Iterator for SubSections<'a> {
    /// A part, or the error at an offset, which ends the iteration.
    type Item = (u64, Result<SubSection<'a>, SframeError>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.at > 0 {
            self.skip_padding();
        }
        if self.rest().is_empty() {
            return None;
        }
        let offset = self.at;
        let part = self.part();
        self.at = match &part {
            Ok(part) => offset.saturating_add(part.header.end()),
            Err(_) => self.data.len() as u64,
        };
        Some((offset, part))
    }
}

fn header(reader: &mut ByteReader<'_>) -> Result<SframeHeader, SframeError> {
    let mut bytes = reader.split(HEADER)?;
    bytes.take(2)?; // the magic number
    let version = bytes.u8()?;
    let version = SframeVersion::from_number(version).ok_or(SframeError::Version(version))?;
    let flags = bytes.u8()?;
    let abi = bytes.u8()?;
    let abi = SframeAbi::from_number(abi).ok_or(SframeError::Machine(abi))?;
    Ok(SframeHeader {
        version,
        flags,
        abi,
        fixed_frame_pointer: bytes.u8()?.cast_signed(),
        fixed_return_address: bytes.u8()?.cast_signed(),
        auxiliary: bytes.u8()?,
        fdes: word(&mut bytes)?,
        fres: word(&mut bytes)?,
        fre_bytes: word(&mut bytes)?,
        fde_offset: word(&mut bytes)?,
        fre_offset: word(&mut bytes)?,
    })
}

/// Takes an unsigned number of 4 bytes.
fn word(reader: &mut ByteReader<'_>) -> Result<u32, SframeError> {
    let number = reader.unsigned(4)?;
    u32::try_from(number).map_err(|_| SframeError::TooLarge)
}

/// An entry: a range of code and its rows (`sframe_func_desc_entry`).
#[derive(Debug, Clone)]
pub struct SframeFde<'a> {
    /// The offset of the entry from the start of the section, in bytes.
    pub offset: u64,
    /// The first address.
    pub start: Vaddr,
    /// The number of bytes.
    pub size: u32,
    /// The number of rows.
    pub count: u32,
    /// The size of the code block that is repeated up to the end, in bytes. `None` if the rows are
    /// not for a block, and in version 1, which lacks the size ([`SframeFde::is_repeated`]).
    pub block: Option<u8>,
    /// Whether the rows are for a repeated block.
    pub is_repeated: bool,
    /// Whether its frames were interrupted by a signal, not called from.
    pub is_signal_frame: bool,
    /// Whether return addresses are signed with key B (AArch64).
    pub has_key_b: bool,
    /// The meaning of the rows' data words.
    pub fde_type: FdeType,
    offset_bytes: u8,
    rows: ByteReader<'a>,
    header: SframeHeader,
}

/// The meaning of data words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FdeType {
    /// Offsets: of the CFA from a register, and of saved registers from the CFA.
    Default,
    /// Registers, offsets, and whether the value is loaded.
    Flexible,
}

impl<'a> SubSection<'a> {
    /// The end of the part, in bytes from the start of the section; the section may end earlier.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.header.end())
    }

    /// Its bytes, headers included, cut off at the end of the section.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        let start = usize::try_from(self.offset).unwrap_or(usize::MAX);
        self.data.get(start..).unwrap_or_default()
    }

    fn entry_offset(&self, index: u32) -> u64 {
        let size = u64::from(self.header.version.fde_bytes());
        self.offset + self.header.entries() + u64::from(index) * size
    }

    /// The number of entries that the bytes have room for.
    #[must_use]
    pub(crate) fn entries_in_reach(&self) -> u32 {
        let size = u64::from(self.header.version.fde_bytes());
        let room = (self.data.len() as u64).saturating_sub(self.entry_offset(0)) / size;
        u32::try_from(room).map_or(self.header.fdes, |room| room.min(self.header.fdes))
    }

    /// Impossible header fields about rows: rows would end behind the section, or be more than
    /// there are bytes for. Entries have their own row offsets, and are read all the same.
    #[cfg(feature = "alloc")]
    pub(crate) fn false_fields(&self) -> impl Iterator<Item = SframeError> + use<> {
        /// The start of a row takes a byte, and its info another.
        const MIN_FRE_BYTES: u64 = 2;
        let header = self.header;
        let bytes = self.bytes().len() as u64;
        let behind_headers = bytes.saturating_sub(header.bytes());
        let behind_start = bytes.saturating_sub(header.rows());
        let rows = behind_start.min(header.fre_bytes.into()) / MIN_FRE_BYTES;
        let fields = [
            ("sfh_num_fres", 12, header.fres, rows),
            ("sfh_fre_len", 16, header.fre_bytes, behind_start),
            ("sfh_freoff", 24, header.fre_offset, behind_headers),
        ];
        let start = self.offset;
        let is_false = |&(.., value, room): &(_, _, u32, u64)| u64::from(value) > room;
        let fields = fields.into_iter().filter(is_false);
        fields.map(move |(field, at, value, room)| SframeError::Header {
            field,
            offset: start + at,
            value,
            room,
        })
    }

    /// All entries; an unreadable one is an error. All entries without bytes are one error, at the
    /// end.
    pub fn entries(
        &self,
    ) -> impl Iterator<Item = (u64, Result<SframeFde<'a>, SframeError>)> + use<'a> {
        let part = *self;
        let room = part.entries_in_reach();
        let missing = SframeError::Entries {
            counted: part.header.fdes,
            room: room.into(),
        };
        let missing = (room < part.header.fdes).then(|| (part.entry_offset(room), Err(missing)));
        let entries = (0..room).map(move |index| (part.entry_offset(index), part.entry(index)));
        entries.chain(missing)
    }

    /// One entry.
    ///
    /// # Errors
    ///
    /// The entry does not exist, or is bad.
    pub fn entry(&self, index: u32) -> Result<SframeFde<'a>, SframeError> {
        let offset = self.entry_offset(index);
        let mut fields = self.cursor(offset);
        let version = self.header.version;
        let start = fields.signed(if version == SframeVersion::V3 { 8 } else { 4 })?;
        let size = word(&mut fields)?;
        let rows_at = word(&mut fields)?;
        let rows_at = self.offset + self.header.rows() + u64::from(rows_at);
        let mut rows = self.cursor(rows_at);
        let (count, info, info2, block) = match version {
            SframeVersion::V1 => (word(&mut fields)?, fields.u8()?, 0, None),
            SframeVersion::V2 => (word(&mut fields)?, fields.u8()?, 0, Some(fields.u8()?)),
            SframeVersion::V3 => (
                u32::try_from(rows.unsigned(2)?).unwrap_or(u32::MAX),
                rows.u8()?,
                rows.u8()?,
                Some(rows.u8()?),
            ),
        };
        let base = if self.header.starts_are_relative_to_fields() {
            offset
        } else {
            self.offset
        };
        let start = self.section.offset(base.wrapping_add_signed(start));
        if start.0.checked_add(size.into()).is_none() {
            return Err(SframeError::Range { start, size });
        }
        let is_repeated = info & 0x10 != 0;
        if is_repeated && block == Some(0) {
            return Err(SframeError::NoBlock);
        }
        Ok(SframeFde {
            offset,
            start,
            size,
            count,
            block: block.filter(|_| is_repeated),
            is_repeated,
            is_signal_frame: version == SframeVersion::V3 && info & 0x80 != 0,
            has_key_b: info & 0x20 != 0,
            fde_type: match info2 & 0x1f {
                0 => FdeType::Default,
                1 => FdeType::Flexible,
                other => return Err(SframeError::EntryType(other)),
            },
            offset_bytes: match info & 0xf {
                0 => 1,
                1 => 2,
                2 => 4,
                other => return Err(SframeError::RowType(other)),
            },
            rows,
            header: self.header,
        })
    }

    fn cursor(&self, from: u64) -> ByteReader<'a> {
        ByteReader::new(self.data, from, self.data.len() as u64, self.endian)
    }

    /// The entry that covers an address, by bisection: [`SframeHeader::is_sorted`] must hold. Among
    /// entries that begin at one address it is any.
    ///
    /// # Errors
    ///
    /// An inspected entry is bad.
    pub fn find(&self, pc: Vaddr) -> Result<Option<SframeFde<'a>>, SframeError> {
        let (mut low, mut high) = (0, self.entries_in_reach());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.entry(middle)?.start <= pc {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let Some(last) = low.checked_sub(1) else {
            return Ok(None);
        };
        let entry = self.entry(last)?;
        Ok((pc < entry.end()).then_some(entry))
    }
}

impl<'a> SframeFde<'a> {
    /// One past the last address.
    #[must_use]
    pub fn end(&self) -> Vaddr {
        self.start.offset(self.size.into())
    }

    /// Whether this is an outermost frame, by having no rows (version 3).
    #[must_use]
    pub fn is_outermost(&self) -> bool {
        self.header.version == SframeVersion::V3
            && self.count == 0
            && self.fde_type == FdeType::Default
    }

    /// The rows, ascending; a bad one ends the iteration. The last may begin at the function's end,
    /// and hold nowhere: GNU as writes such a row for directives behind the last instruction.
    #[must_use]
    pub fn rows(&self) -> FreIter<'a> {
        FreIter {
            entry: self.clone(),
            next: 0,
            before: None,
        }
    }

    /// The row's content at an address that the entry covers; `None` before the first row.
    ///
    /// # Errors
    ///
    /// A row up to that address is bad.
    pub fn frame(&self, pc: Vaddr) -> Result<Option<FreContents>, SframeError> {
        if self.is_outermost() {
            return Ok(Some(FreContents::Outermost));
        }
        let mut offset = pc.0.wrapping_sub(self.start.0);
        if let Some(block) = self.block_bytes()? {
            offset %= u64::from(block);
        }
        let mut found = None;
        for row in self.rows() {
            let row = row?;
            if u64::from(row.offset) > offset {
                break;
            }
            found = Some(row.contents);
        }
        Ok(found)
    }

    /// The size of the repeated block in bytes, if the entry has one. Version 1 does not store it:
    /// there a row holds at addresses with the bits of its offset. For `.plt`, its only use, that
    /// equals the least power of two with room for all rows.
    ///
    /// # Errors
    ///
    /// A row is bad.
    pub(crate) fn block_bytes(&self) -> Result<Option<u32>, SframeError> {
        if !self.is_repeated {
            return Ok(None);
        }
        if let Some(block) = self.block {
            return Ok(Some(block.into()));
        }
        let mut last = 0;
        for row in self.rows() {
            last = row?.offset;
        }
        let room = last.checked_add(1).and_then(u32::checked_next_power_of_two);
        room.map(Some).ok_or(SframeError::TooLarge)
    }

    fn machine(&self) -> SframeAbi {
        self.header.abi
    }

    /// The limit of row starts.
    pub(super) fn limit(&self) -> u32 {
        match self.block {
            Some(block) => block.into(),
            None => self.size,
        }
    }

    /// The location of a register with a fixed offset.
    fn fixed(offset: i8) -> Option<FreValue> {
        (offset != 0).then(|| FreValue::saved(offset.into()))
    }

    fn default_places(&self, info: u8, words: &[u32], bytes: u8) -> Option<FreRules> {
        let at = |index: usize| words.get(index).map(|word| signed(*word, bytes));
        let fixed_ra = Self::fixed(self.header.fixed_return_address);
        let (ra, fp) = match fixed_ra {
            Some(_) => (None, at(1)),
            None => (at(1), at(2)),
        };
        let most = if fixed_ra.is_some() { 2 } else { 3 };
        if words.len() > most {
            return None;
        }
        let register = match info & 1 {
            0 => self.machine().frame_pointer(),
            _ => self.machine().stack_pointer(),
        };
        let ra = ra.filter(|offset| !(self.machine() == SframeAbi::S390x && *offset == 0));
        Some(FreRules {
            cfa: FreValue::sum(register, self.machine().cfa_offset(at(0)?)),
            return_address: ra.map(|offset| self.saved(offset)).or(fixed_ra),
            frame_pointer: fp
                .map(|offset| self.saved(offset))
                .or(Self::fixed(self.header.fixed_frame_pointer)),
            is_signed: info & 0x80 != 0,
        })
    }

    /// The location of a saved register in a default row: on the stack, or on s390x before version
    /// 3 in a register.
    fn saved(&self, offset: i32) -> FreValue {
        let names_register = self.machine() == SframeAbi::S390x
            && self.header.version < SframeVersion::V3
            && offset & 1 != 0;
        match u16::try_from(offset >> 1) {
            Ok(number) if names_register => FreValue::sum(Register(number), 0),
            _ => FreValue::saved(offset.into()),
        }
    }

    fn flexible_places(
        &self,
        row: u32,
        info: u8,
        words: &[u32],
        bytes: u8,
    ) -> Result<FreRules, SframeError> {
        let wrong = SframeError::Words {
            row,
            words: u8::try_from(words.len()).unwrap_or(u8::MAX),
        };
        let mut words = words;
        let mut place = || flexible(&mut words, bytes, wrong);
        let mut cfa = place()?.ok_or(wrong)?;
        if cfa.base == FreBase::Cfa {
            return Err(SframeError::NoCfaBase { row });
        }
        cfa.offset = match i32::try_from(cfa.offset) {
            Ok(stored) => self.machine().cfa_offset(stored),
            Err(_) => cfa.offset,
        };
        let return_address = place()?;
        let frame_pointer = place()?;
        if !words.is_empty() {
            return Err(wrong);
        }
        Ok(FreRules {
            cfa,
            return_address: return_address.or(Self::fixed(self.header.fixed_return_address)),
            frame_pointer: frame_pointer.or(Self::fixed(self.header.fixed_frame_pointer)),
            is_signed: info & 0x80 != 0,
        })
    }
}

/// Sign-extends a data word of that many bytes.
fn signed(word: u32, bytes: u8) -> i32 {
    let unused = 32_u32.saturating_sub(8 * u32::from(bytes));
    (word << unused).cast_signed() >> unused
}

/// Takes a control word and its offset; `None` for padding, or if no words are left.
fn flexible(
    words: &mut &[u32],
    bytes: u8,
    cut_short: SframeError,
) -> Result<Option<FreValue>, SframeError> {
    let (control, offset) = match *words {
        [] => return Ok(None),
        [0, rest @ ..] => {
            *words = rest;
            return Ok(None);
        }
        [_] => return Err(cut_short),
        [control, offset, rest @ ..] => {
            *words = rest;
            (control, offset)
        }
    };
    let number = control >> 3;
    let register = u16::try_from(number).map_err(|_| SframeError::Register(number))?;
    Ok(Some(FreValue {
        base: match control & 1 {
            0 => FreBase::Cfa,
            _ => FreBase::Register(Register(register)),
        },
        offset: signed(*offset, bytes).into(),
        is_loaded: control & 2 != 0,
    }))
}

/// The rows of an entry.
#[derive(Debug, Clone)]
pub struct FreIter<'a> {
    entry: SframeFde<'a>,
    /// The number of the next row.
    next: u32,
    /// The offset of the previous row.
    before: Option<u32>,
}

impl FreIter<'_> {
    /// The maximum number of data words of a row.
    const WORDS: usize = 15;

    fn row(&mut self, row: u32) -> Result<FrameRowEntry, SframeError> {
        let bytes = self.entry.offset_bytes;
        let offset = u32::try_from(self.entry.rows.unsigned(bytes)?).unwrap_or(u32::MAX);
        if let Some(from) = self.before.filter(|from| *from >= offset) {
            return Err(SframeError::RowOrder {
                row,
                from,
                to: offset,
            });
        }
        self.before = Some(offset);
        let end = self.entry.limit();
        if offset > end {
            return Err(SframeError::RowOutside {
                row,
                at: offset,
                end,
            });
        }
        let frame = self.frame(row)?;
        Ok(FrameRowEntry {
            offset,
            contents: frame,
        })
    }

    fn frame(&mut self, row: u32) -> Result<FreContents, SframeError> {
        let info = self.entry.rows.u8()?;
        let bytes = match info >> 5 & 3 {
            0 => 1,
            1 => 2,
            2 => 4,
            _ => return Err(SframeError::WordSize { row }),
        };
        let count = info >> 1 & 0xf;
        if count == 0 && self.entry.header.version != SframeVersion::V1 {
            return Ok(FreContents::Outermost);
        }
        let mut words = [0_u32; Self::WORDS];
        for word in words.iter_mut().take(count.into()) {
            *word = u32::try_from(self.entry.rows.unsigned(bytes)?).unwrap_or(u32::MAX);
        }
        let words = words.get(..usize::from(count)).unwrap_or_default();
        let places = match self.entry.fde_type {
            FdeType::Default => self.entry.default_places(info, words, bytes),
            FdeType::Flexible => Some(self.entry.flexible_places(row, info, words, bytes)?),
        };
        places
            .map(FreContents::Rules)
            .ok_or(SframeError::Words { row, words: count })
    }
}

impl Iterator for FreIter<'_> {
    type Item = Result<FrameRowEntry, SframeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next >= self.entry.count {
            return None;
        }
        let row = self.row(self.next);
        self.next = match row {
            Ok(_) => self.next + 1,
            Err(_) => self.entry.count,
        };
        Some(row)
    }
}
