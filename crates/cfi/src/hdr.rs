//! `.eh_frame_hdr`: the binary search table of an `.eh_frame` section (LSB, "The .eh_frame_hdr
//! section").
//!
//! It is a hint, never the truth: it may be absent, unsorted, incomplete or wrong.

use unspool_rows::arch::AddressSize;
use unspool_rows::{Abi, Endian, Vaddr};

use crate::byte_reader::ByteReader;
use crate::error::CfiError;
use crate::pointer::{PointerBases, PointerEncoding};
use crate::{CfiSection, SectionKind};

/// The header and its table.
#[derive(Debug, Clone, Copy)]
pub struct Hdr<'a> {
    /// The section's own bytes; its pointers are relative to `section.address`.
    section: CfiSection<'a>,
    /// The address of `.eh_frame`.
    pub eh_frame: Vaddr,
    encoding: PointerEncoding,
    entry_size: u8,
    table_offset: u64,
    /// The number of entries in the search table; zero if it cannot be searched.
    pub count: u64,
}

/// An entry of the search table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HdrEntry {
    /// The first address of an FDE.
    pub start: Vaddr,
    /// The address of the FDE.
    pub fde: Vaddr,
}

impl<'a> Hdr<'a> {
    /// Reads the header. `data_base` of its pointers is the section's own address.
    ///
    /// # Errors
    ///
    /// The header is truncated, or has an unknown version or encoding.
    pub fn parse(data: &'a [u8], address: Vaddr, abi: Abi) -> Result<Self, CfiError> {
        let section = CfiSection {
            kind: SectionKind::EhFrame,
            data,
            address,
            text_base: None,
            data_base: Some(address),
            abi,
        };
        let address_size = abi.arch.spec().address_size;
        let bases = PointerBases {
            section: &section,
            address_size,
            function: None,
        };
        let mut cursor = ByteReader::new(data, 0, data.len() as u64, abi.endian);
        let version = cursor.u8()?;
        if version != 1 {
            return Err(CfiError::Version(version));
        }
        let pointer_encoding = PointerEncoding(cursor.u8()?);
        let count_encoding = PointerEncoding(cursor.u8()?);
        let encoding = PointerEncoding(cursor.u8()?);
        let eh_frame = bases.address(&mut cursor, pointer_encoding)?;
        let mut hdr = Hdr {
            section,
            eh_frame,
            encoding,
            entry_size: 0,
            table_offset: 0,
            count: 0,
        };
        if count_encoding.is_omitted() || encoding.is_omitted() {
            return Ok(hdr);
        }
        let count = bases.length(&mut cursor, count_encoding)?;
        hdr.table_offset = cursor.offset();
        // Entries of variable size cannot be searched.
        if let Some(size) = encoding.size(address_size) {
            hdr.entry_size = size * 2;
            let room = (cursor.end() - cursor.offset()) / u64::from(hdr.entry_size);
            hdr.count = count.min(room);
        }
        Ok(hdr)
    }

    /// The entry at `index`.
    ///
    /// # Errors
    ///
    /// The index is too large, or the encoding is unknown.
    pub fn entry(&self, index: u64) -> Result<HdrEntry, CfiError> {
        let size = u64::from(self.entry_size);
        let end = self.table_offset + self.count * size;
        let offset = index.saturating_mul(size).saturating_add(self.table_offset);
        let mut cursor = ByteReader::new(self.section.data, offset, end, self.section.abi.endian);
        let address_size = self.section.abi.arch.spec().address_size;
        let bases = PointerBases {
            section: &self.section,
            address_size,
            function: None,
        };
        Ok(HdrEntry {
            start: bases.address(&mut cursor, self.encoding)?,
            fde: bases.address(&mut cursor, self.encoding)?,
        })
    }

    /// The last entry that starts at or before `pc`, by binary search: correct if the table is
    /// sorted. Takes at most 64 steps.
    ///
    /// # Errors
    ///
    /// The encoding is unknown.
    pub(crate) fn search(&self, pc: Vaddr) -> Result<Option<HdrEntry>, CfiError> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.start(middle)? <= pc {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let found = low.checked_sub(1).map(|index| self.entry(index));
        found.transpose()
    }

    /// The start of the entry at `index`.
    #[inline]
    fn start(&self, index: u64) -> Result<Vaddr, CfiError> {
        match self.usual_start(index) {
            Some(start) => Ok(start),
            None => self.entry(index).map(|entry| entry.start),
        }
    }

    /// The start of the entry at `index`, in the linkers' encoding: four bytes, relative to the
    /// section.
    #[inline]
    fn usual_start(&self, index: u64) -> Option<Vaddr> {
        let abi = self.section.abi;
        if self.encoding != PointerEncoding::DATAREL_SDATA4
            || abi.arch.spec().address_size != AddressSize::W64
        {
            return None;
        }
        let offset = index.checked_mul(8)?.checked_add(self.table_offset)?;
        let bytes = self.section.data.get(usize::try_from(offset).ok()?..)?;
        let bytes = *bytes.first_chunk()?;
        let distance = match abi.endian {
            Endian::Little => i32::from_le_bytes(bytes),
            Endian::Big => i32::from_be_bytes(bytes),
        };
        let base = self.section.data_base?;
        Some(Vaddr(base.0.wrapping_add_signed(distance.into())))
    }
}
