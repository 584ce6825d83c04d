//! Unwind table entries in the target's memory: found by the search table of `.eh_frame_hdr`,
//! copied, and read with `unspool_cfi`.

use alloc::vec::Vec;
use core::ops::ControlFlow;

use unspool_cfi::cursor::Cursor;
use unspool_cfi::evaluate::Evaluator;
use unspool_cfi::{Cie, Entry, FdeEntry, Section, SectionKind};
use unspool_ir::memory::read_uint;
use unspool_ir::{Abi, Arch, Endian, Memory, Pointer, Row, RuntimeAddr, Vaddr};

use crate::abi::{self, DynInfo, Error, ProcInfo};

/// What a target is. Its byte order is the client's business: words come in the host's.
pub const ABI: Abi = Abi {
    arch: Arch::X86_64,
    endian: Endian::Little,
};

/// An entry of more bytes is taken for garbage. The longest that we have seen has 40 KB.
const MAX_ENTRY: u64 = 1 << 20;

/// The address of the entry that may cover `ip`, by binary search in a search table in the target.
///
/// # Errors
///
/// [`Error::NO_INFO`] where the table has none, [`Error::INVALID`] if it is not in the target;
/// the memory's.
pub fn search_table<M: Memory>(memory: &M, table: &DynInfo, ip: u64) -> Result<u64, Error> {
    let base = match table.format {
        abi::FORMAT_REMOTE_TABLE => table.table.segbase,
        abi::FORMAT_IP_OFFSET => table.start_ip,
        _ => return Err(Error::INVALID),
    };
    if !(table.start_ip..table.end_ip).contains(&ip) {
        return Err(Error::NO_INFO);
    }
    let wanted = ip.wrapping_sub(base).wrapping_sub(table.load_offset);
    let at = |index: u64| table.table.table_data.wrapping_add(index * 8);
    // An entry has two 32-bit numbers, so there are as many entries as words.
    let (mut low, mut high) = (0, table.table.table_len.min(u64::from(u32::MAX)));
    while low < high {
        let middle = low + (high - low) / 2;
        let start = read_i32(memory, at(middle))?;
        if i64::from(start) <= wanted.cast_signed() {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    let index = low.checked_sub(1).ok_or(Error::NO_INFO)?;
    let offset = read_i32(memory, at(index).wrapping_add(4))?;
    let base = table.table.segbase;
    Ok(base.wrapping_add_signed(i64::from(offset)))
}

/// `unw_dyn_info_t` to `unw_proc_info_t`: the entry of a search table that covers `ip`.
/// [`ProcInfo::unwind_info`] is the address of the FDE.
///
/// # Errors
///
/// [`Error::NO_INFO`] where none covers it, [`Error::INVALID`] for a table that is not in the
/// target, [`Error::BAD_FRAME`] for a bad entry; the memory's.
pub fn search<M: Memory>(
    memory: &M,
    table: &DynInfo,
    ip: u64,
    info: &mut ProcInfo,
) -> Result<(), Error> {
    let address = search_table(memory, table, ip)?;
    let found = CopiedFde::read(memory, address, table.gp)?;
    let cie = found.cie()?;
    let fde = found.fde(&cie)?;
    info.start_ip = fde.start.0.wrapping_add(table.load_offset);
    info.end_ip = fde.end.0.wrapping_add(table.load_offset);
    info.handler = resolved(memory, cie.personality)?;
    info.lsda = resolved(memory, fde.lsda)?;
    info.gp = table.gp;
    info.flags = 0;
    info.format = abi::FORMAT_TABLE;
    info.unwind_info_size = i32::try_from(found.fde.bytes.len()).unwrap_or(i32::MAX);
    info.unwind_info = core::ptr::without_provenance_mut(host_address(address)?);
    match (info.start_ip..info.end_ip).contains(&ip) {
        true => Ok(()),
        false => Err(Error::NO_INFO),
    }
}

/// The address of the FDE that [`search`] found.
fn fde_address(info: &ProcInfo) -> Result<u64, Error> {
    match info.format {
        abi::FORMAT_TABLE | abi::FORMAT_REMOTE_TABLE if !info.unwind_info.is_null() => {
            u64::try_from(info.unwind_info.addr()).map_err(|_| Error::INVALID)
        }
        _ => Err(Error::NO_INFO),
    }
}

fn host_address(address: u64) -> Result<usize, Error> {
    usize::try_from(address).map_err(|_| Error::INVALID)
}

fn resolved<M: Memory>(memory: &M, pointer: Option<Pointer>) -> Result<u64, Error> {
    match pointer {
        None => Ok(0),
        Some(Pointer::Direct(addr)) => Ok(addr.0),
        Some(Pointer::Indirect(addr)) => read(memory, addr.0, 8),
    }
}

fn read<M: Memory>(memory: &M, addr: u64, size: u8) -> Result<u64, Error> {
    read_uint(memory, RuntimeAddr(addr), size, ABI.endian).map_err(|_| Error::INVALID)
}

fn read_i32<M: Memory>(memory: &M, addr: u64) -> Result<i32, Error> {
    let mut bytes = [0; 4];
    memory
        .read(RuntimeAddr(addr), &mut bytes)
        .map_err(|_| Error::INVALID)?;
    Ok(i32::from_le_bytes(bytes))
}

/// One row of the procedure, for a range of addresses.
#[derive(Debug)]
pub struct RowAt<'r, 'e> {
    /// The first address.
    pub start: u64,
    /// One past the last.
    pub end: u64,
    /// The row.
    pub row: &'r Row<'e>,
}

/// Shows `visit` the rows of a procedure that [`search`] found, in the order of addresses, until it
/// breaks off or an instruction is bad.
///
/// # Errors
///
/// [`Error::NO_INFO`] for a procedure that it did not find, [`Error::BAD_FRAME`] for a bad entry;
/// the memory's, and those of `visit`.
pub fn rows<M: Memory>(
    memory: &M,
    info: &ProcInfo,
    mut visit: impl FnMut(RowAt<'_, '_>) -> Result<ControlFlow<()>, Error>,
) -> Result<(), Error> {
    let found = CopiedFde::read(memory, fde_address(info)?, info.gp)?;
    let cie = found.cie()?;
    let fde = found.fde(&cie)?;
    let bias = info.start_ip.wrapping_sub(fde.start.0);
    let (cie_section, section) = (found.section(&found.cie), found.section(&found.fde));
    let bad = |_| Error::BAD_FRAME;
    let mut evaluator = Evaluator::new();
    let initial = evaluator.initial_row(&cie_section, &cie).map_err(bad)?;
    let mut rows = evaluator.rows(&section, &cie, &initial, &fde);
    while let Some(range) = rows.advance().map_err(bad)? {
        let at = RowAt {
            start: range.start.0.wrapping_add(bias),
            end: range.end.0.wrapping_add(bias),
            row: rows.row(),
        };
        if visit(at)?.is_break() {
            break;
        }
    }
    Ok(())
}

/// An FDE and its CIE, copied.
struct CopiedFde {
    fde: CopiedEntry,
    cie: CopiedEntry,
    /// What data-relative pointers are relative to.
    data_base: Vaddr,
}

impl CopiedFde {
    fn read<M: Memory>(memory: &M, address: u64, gp: u64) -> Result<CopiedFde, Error> {
        let fde = CopiedEntry::read(memory, address)?;
        let cie = CopiedEntry::read(memory, fde.cie.ok_or(Error::NO_INFO)?)?;
        match cie.cie {
            None => Ok(CopiedFde {
                fde,
                cie,
                data_base: Vaddr(gp),
            }),
            Some(_) => Err(Error::BAD_FRAME),
        }
    }

    fn cie(&self) -> Result<Cie<'_>, Error> {
        Cie::parse(&self.section(&self.cie), self.cie.entry()).map_err(|_| Error::BAD_FRAME)
    }

    fn fde<'a>(&'a self, cie: &Cie<'a>) -> Result<FdeEntry<'a>, Error> {
        let section = self.section(&self.fde);
        FdeEntry::parse(&section, cie, self.fde.entry()).map_err(|_| Error::BAD_FRAME)
    }

    /// A section that has nothing but one of the two.
    fn section<'a>(&self, entry: &'a CopiedEntry) -> Section<'a> {
        Section {
            kind: SectionKind::EhFrame,
            data: &entry.bytes,
            address: Vaddr(entry.address),
            text_base: None,
            data_base: Some(self.data_base),
            abi: ABI,
        }
    }
}

/// The bytes of an entry of `.eh_frame`.
struct CopiedEntry {
    address: u64,
    bytes: Vec<u8>,
    /// Where the bytes behind the CIE pointer begin.
    body: u64,
    /// The address of its CIE; `None` for a CIE.
    cie: Option<u64>,
}

impl CopiedEntry {
    /// Copies the entry at an address (LSB, "The .eh_frame section").
    fn read<M: Memory>(memory: &M, address: u64) -> Result<CopiedEntry, Error> {
        let (length_size, length) = match read(memory, address, 4)? {
            // A terminator.
            0 => return Err(Error::NO_INFO),
            0xffff_ffff => (12, read(memory, address.wrapping_add(4), 8)?),
            length => (4, length),
        };
        if !(4..=MAX_ENTRY).contains(&length) {
            return Err(Error::BAD_FRAME);
        }
        let id_address = address.wrapping_add(length_size);
        let back = read_i32(memory, id_address)?;
        let size = usize::try_from(length_size + length).map_err(|_| Error::BAD_FRAME)?;
        let mut bytes = Vec::new();
        bytes
            .try_reserve_exact(size)
            .map_err(|_| Error::NO_MEMORY)?;
        bytes.resize(size, 0);
        memory
            .read(RuntimeAddr(address), &mut bytes)
            .map_err(|_| Error::INVALID)?;
        Ok(CopiedEntry {
            address,
            bytes,
            body: length_size + 4,
            cie: (back != 0).then(|| id_address.wrapping_sub(i64::from(back).cast_unsigned())),
        })
    }

    fn entry(&self) -> Entry<'_> {
        let end = self.bytes.len() as u64;
        let body = Cursor::new(&self.bytes, self.body, end, ABI.endian);
        // Where the CIE is in the section means nothing: it is in another.
        Entry::new(0, self.cie.map(|_| 0), body)
    }
}

#[cfg(test)]
pub(crate) mod tests;
