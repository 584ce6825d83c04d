//! An FDE and its CIE, anywhere in a target's memory.

use alloc::vec::Vec;
use core::ops::{ControlFlow, Range};

use unspool_cfi::byte_reader::ByteReader;
use unspool_cfi::evaluate::Evaluator;
use unspool_cfi::{CfiEntry, CfiSection, Cie, ParsedFde, SectionKind};
use unspool_rows::memory::read_uint;
use unspool_rows::{LoadBias, Memory, Pointer, Row, RuntimeAddr, Vaddr};

use crate::abi::{self, DynInfo, Error, ProcInfo};
use crate::remote_cfi::ABI;

/// The limit of an entry's size, in bytes: larger ones are treated as garbage. The longest known
/// entry has 40 KB.
const MAX_ENTRY_BYTES: u64 = 1 << 20;

/// The locations of an FDE and its CIE.
#[derive(Debug)]
pub(crate) struct EntryHeaders {
    fde: EntryHeader,
    cie: EntryHeader,
    /// The base of data-relative pointers.
    data_base: Vaddr,
}

impl EntryHeaders {
    /// Reads the headers of the FDE at an address and of its CIE. Data-relative pointers are
    /// relative to `gp`.
    ///
    /// # Errors
    ///
    /// [`Error::NO_INFO`] if no FDE is there, [`Error::BAD_FRAME`] for a bad one; errors of the
    /// memory.
    pub(crate) fn read<M: Memory>(
        memory: &M,
        address: u64,
        gp: u64,
    ) -> Result<EntryHeaders, Error> {
        let fde = EntryHeader::read(memory, address)?;
        let cie = EntryHeader::read(memory, fde.cie.ok_or(Error::NO_INFO)?)?;
        match cie.cie {
            None => Ok(EntryHeaders {
                fde,
                cie,
                data_base: Vaddr(gp),
            }),
            Some(_) => Err(Error::BAD_FRAME),
        }
    }

    /// Copies the entries.
    ///
    /// # Errors
    ///
    /// [`Error::NO_MEMORY`]; errors of the memory.
    pub(crate) fn copy<M: Memory>(self, memory: &M) -> Result<OwnedFde, Error> {
        Ok(OwnedFde {
            fde: self.fde.copy(memory)?,
            cie: self.cie.copy(memory)?,
            headers: self,
        })
    }

    /// Parses the entries. `bytes` returns the bytes at addresses.
    ///
    /// # Errors
    ///
    /// [`Error::BAD_FRAME`] for a bad entry; errors of `bytes`.
    pub(crate) fn parse<'a>(
        &self,
        bytes: impl Fn(Range<u64>) -> Result<&'a [u8], Error>,
    ) -> Result<FdeWithCie<'a>, Error> {
        self.parsed(bytes(self.fde.addresses())?, bytes(self.cie.addresses())?)
    }

    fn parsed<'a>(&self, fde: &'a [u8], cie: &'a [u8]) -> Result<FdeWithCie<'a>, Error> {
        let bad = |_| Error::BAD_FRAME;
        // Each gets a section that has nothing else.
        let sections = [(&self.fde, fde), (&self.cie, cie)].map(|(header, data)| CfiSection {
            kind: SectionKind::EhFrame,
            data,
            address: Vaddr(header.address),
            text_base: None,
            data_base: Some(self.data_base),
            abi: ABI,
        });
        let [section, cie_section] = sections;
        let cie = Cie::parse(&cie_section, self.cie.entry(cie)).map_err(bad)?;
        let fde = ParsedFde::parse(&section, &cie, self.fde.entry(fde)).map_err(bad)?;
        Ok(FdeWithCie {
            section,
            cie_section,
            cie,
            fde,
        })
    }
}

/// The location of an entry of `.eh_frame`.
#[derive(Debug)]
struct EntryHeader {
    address: u64,
    /// The size of the whole entry, in bytes.
    size: u64,
    /// The address of the bytes behind the CIE pointer.
    body: u64,
    /// The address of its CIE; `None` for a CIE.
    cie: Option<u64>,
}

impl EntryHeader {
    /// Reads the header of the entry at an address (LSB, "The .eh_frame section").
    fn read<M: Memory>(memory: &M, address: u64) -> Result<EntryHeader, Error> {
        let number = |at, size| {
            let number = read_uint(memory, RuntimeAddr(at), size, ABI.endian);
            number.map_err(|_| Error::INVALID)
        };
        let (length_size, length) = match number(address, 4)? {
            // A terminator.
            0 => return Err(Error::NO_INFO),
            0xffff_ffff => (12, number(address.wrapping_add(4), 8)?),
            length => (4, length),
        };
        if !(4..=MAX_ENTRY_BYTES).contains(&length) {
            return Err(Error::BAD_FRAME);
        }
        let id_address = address.wrapping_add(length_size);
        let back = read_i32(memory, id_address)?;
        Ok(EntryHeader {
            address,
            size: length_size + length,
            body: length_size + 4,
            cie: (back != 0).then(|| id_address.wrapping_sub(i64::from(back).cast_unsigned())),
        })
    }

    fn addresses(&self) -> Range<u64> {
        self.address..self.address.wrapping_add(self.size)
    }

    fn copy<M: Memory>(&self, memory: &M) -> Result<Vec<u8>, Error> {
        let size = usize::try_from(self.size).map_err(|_| Error::BAD_FRAME)?;
        let mut bytes = Vec::new();
        let reserved = bytes.try_reserve_exact(size);
        reserved.map_err(|_| Error::NO_MEMORY)?;
        bytes.resize(size, 0);
        let read = memory.read(RuntimeAddr(self.address), &mut bytes);
        read.map(|()| bytes).map_err(|_| Error::INVALID)
    }

    fn entry<'a>(&self, bytes: &'a [u8]) -> CfiEntry<'a> {
        let body = ByteReader::new(bytes, self.body, self.size, ABI.endian);
        // The CIE's offset has no meaning here: it is in another section.
        CfiEntry::new(0, self.cie.map(|_| 0), body)
    }
}

/// A signed number in a target's memory.
pub(crate) fn read_i32<M: Memory>(memory: &M, addr: u64) -> Result<i32, Error> {
    let mut bytes = [0; 4];
    let read = memory.read(RuntimeAddr(addr), &mut bytes);
    read.map_err(|_| Error::INVALID)?;
    Ok(i32::from_le_bytes(bytes))
}

/// An FDE and its CIE, copied.
#[derive(Debug)]
pub(crate) struct OwnedFde {
    headers: EntryHeaders,
    fde: Vec<u8>,
    cie: Vec<u8>,
}

impl OwnedFde {
    /// Parses the entries.
    ///
    /// # Errors
    ///
    /// [`Error::BAD_FRAME`] for a bad entry.
    pub(crate) fn parse(&self) -> Result<FdeWithCie<'_>, Error> {
        self.headers.parsed(&self.fde, &self.cie)
    }
}

/// An FDE and its CIE.
#[derive(Debug)]
pub(crate) struct FdeWithCie<'a> {
    section: CfiSection<'a>,
    cie_section: CfiSection<'a>,
    cie: Cie<'a>,
    fde: ParsedFde<'a>,
}

/// One row of a procedure, for a range of addresses.
#[derive(Debug)]
pub struct RowAt<'r, 'e> {
    /// The first address.
    pub start: u64,
    /// One past the last.
    pub end: u64,
    /// The row.
    pub row: &'r Row<'e>,
}

impl<'a> FdeWithCie<'a> {
    /// The entries of the FDE at an offset of a section, in bytes.
    ///
    /// # Errors
    ///
    /// [`Error::BAD_FRAME`] for a bad entry.
    pub(crate) fn in_section(
        section: CfiSection<'a>,
        offset: u64,
    ) -> Result<FdeWithCie<'a>, Error> {
        let bad = |_| Error::BAD_FRAME;
        let entry = section
            .entry(offset)
            .map_err(bad)?
            .ok_or(Error::BAD_FRAME)?;
        let cie = Cie::parse_at(&section, entry.cie.ok_or(Error::BAD_FRAME)?).map_err(bad)?;
        let fde = ParsedFde::parse(&section, &cie, entry).map_err(bad)?;
        Ok(FdeWithCie {
            section,
            cie_section: section,
            cie,
            fde,
        })
    }

    /// The unrelocated addresses that they cover.
    #[must_use]
    pub(crate) fn addresses(&self) -> Range<Vaddr> {
        self.fde.start..self.fde.end
    }

    /// The facts about the procedure apart from its rows; `table` has led to it.
    ///
    /// As with libunwind, the table's load offset is added to the procedure's addresses and to no
    /// others.
    ///
    /// # Errors
    ///
    /// [`Error::INVALID`] if a pointer to a pointer cannot be read.
    pub(crate) fn info<M: Memory>(&self, memory: &M, table: &DynInfo) -> Result<ProcInfo, Error> {
        let moved = |addr: Vaddr| addr.0.wrapping_add(table.load_offset);
        let resolved = |pointer| resolved(memory, LoadBias(0), pointer);
        let address = usize::try_from(self.section.address.0).map_err(|_| Error::INVALID)?;
        Ok(ProcInfo {
            start_ip: moved(self.fde.start),
            end_ip: moved(self.fde.end),
            lsda: resolved(self.fde.lsda)?,
            handler: resolved(self.cie.personality)?,
            gp: table.gp,
            format: abi::FORMAT_TABLE,
            unwind_info_size: i32::try_from(self.section.data.len()).unwrap_or(i32::MAX),
            unwind_info: core::ptr::without_provenance_mut(address),
            ..ProcInfo::EMPTY
        })
    }

    /// Passes the rows to `visit` in address order, until it stops or an instruction is bad. `bias`
    /// is added to the rows' addresses.
    ///
    /// # Errors
    ///
    /// [`Error::BAD_FRAME`] for a bad entry, and errors of `visit`.
    pub(crate) fn rows(
        &self,
        bias: LoadBias,
        mut visit: impl FnMut(RowAt<'_, 'a>) -> Result<ControlFlow<()>, Error>,
    ) -> Result<(), Error> {
        let bad = |_| Error::BAD_FRAME;
        let mut evaluator = Evaluator::new();
        let initial = evaluator.initial_row(&self.cie_section, &self.cie);
        let initial = initial.map_err(bad)?;
        let mut rows = evaluator.rows(&self.section, &self.cie, &initial, &self.fde);
        while let Some(range) = rows.advance().map_err(bad)? {
            let at = RowAt {
                start: bias.to_runtime(range.start).0,
                end: bias.to_runtime(range.end).0,
                row: rows.row(),
            };
            if visit(at)?.is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// The target of an entry's pointer, or zero.
///
/// # Errors
///
/// [`Error::INVALID`] if a pointer to it cannot be read.
pub(crate) fn resolved<M: Memory>(
    memory: &M,
    bias: LoadBias,
    pointer: Option<Pointer>,
) -> Result<u64, Error> {
    match pointer {
        None => Ok(0),
        Some(Pointer::Direct(addr)) => Ok(bias.to_runtime(addr).0),
        Some(Pointer::Indirect(slot)) => {
            let read = read_uint(memory, bias.to_runtime(slot), 8, ABI.endian);
            read.map_err(|_| Error::INVALID)
        }
    }
}
