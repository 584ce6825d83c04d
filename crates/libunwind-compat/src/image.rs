//! A 64-bit ELF file of x86-64: as loaded in memory, to find its unwind table, and as bytes, to
//! name its functions (System V ABI, "Object Files").

use core::ops::Range;

use unspool_rows::{Memory, RuntimeAddr, Unreadable};

use crate::abi::{self, DynInfo, Error, RemoteTable};

/// The program headers of a file that begins at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadedHeaders {
    /// Run-time minus link-time address.
    pub(crate) bias: u64,
    /// The first address of all segments.
    pub start: u64,
    /// One past the last.
    pub end: u64,
    /// The address of `.eh_frame_hdr`.
    pub(crate) eh_frame_hdr: Option<u64>,
}

const ELF_HEADER_BYTES: usize = 64;
const PROGRAM_HEADER: usize = 56;
const SECTION_HEADER: usize = 64;
const SYMBOL: usize = 24;
/// The maximum size of a symbol table to read, in bytes: 44 million symbols.
const MAX_TABLE_BYTES: u64 = 1 << 30;
const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
/// The maximum size of notes to read, in bytes.
const MAX_NOTE_BYTES: u64 = 4096;
/// `NT_GNU_BUILD_ID`, and its owner.
const BUILD_ID_NOTE: [u8; 8] = *b"\x03\0\0\0GNU\0";
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
const SHT_SYMTAB: u32 = 2;
const SHT_NOBITS: u32 = 8;
const SHT_DYNSYM: u32 = 11;
const SHF_COMPRESSED: u64 = 1 << 11;
const STT_FUNC: u8 = 2;

impl LoadedHeaders {
    /// Reads the headers of the file that begins at `base`.
    ///
    /// # Errors
    ///
    /// [`Error::NO_INFO`] if no file is there; errors of the memory.
    pub fn read<M: Memory>(memory: &M, base: u64) -> Result<LoadedHeaders, Error> {
        let mut image = LoadedHeaders {
            bias: 0,
            start: u64::MAX,
            end: 0,
            eh_frame_hdr: None,
        };
        let mut bias = None;
        for_each_segment(memory, base, |segment| {
            let (offset, vaddr) = (u64_at(segment, 8)?, u64_at(segment, 16)?);
            match u32_at(segment, 0)? {
                PT_LOAD => {
                    // The mapping with the file's first byte is that of the first segment.
                    bias = bias.or(Some(base.wrapping_add(offset).wrapping_sub(vaddr)));
                    image.start = image.start.min(vaddr);
                    let end = vaddr.checked_add(u64_at(segment, 40)?);
                    image.end = image.end.max(end.ok_or(Error::NO_INFO)?);
                }
                PT_GNU_EH_FRAME => image.eh_frame_hdr = Some(vaddr),
                _ => {}
            }
            Ok(())
        })?;
        let bias = bias.ok_or(Error::NO_INFO)?;
        let moved = |vaddr: u64| vaddr.wrapping_add(bias);
        Ok(LoadedHeaders {
            bias,
            start: moved(image.start),
            end: moved(image.end),
            eh_frame_hdr: image.eh_frame_hdr.map(moved),
        })
    }

    /// The build ID of the file that begins at `base`: its address and its length in bytes.
    pub(crate) fn build_id<M: Memory>(&self, memory: &M, base: u64) -> Option<(u64, u64)> {
        let mut found = None;
        let read = for_each_segment(memory, base, |segment| {
            if u32_at(segment, 0)? != PT_NOTE || found.is_some() {
                return Ok(());
            }
            let start = self.bias.wrapping_add(u64_at(segment, 16)?);
            let length = u64_at(segment, 40)?.min(MAX_NOTE_BYTES);
            let mut at = 0;
            while at < length && found.is_none() {
                let note = copy::<16, M>(memory, start.wrapping_add(at))?;
                let name = u64::from(u32_at(&note, 0)?);
                let content = u64::from(u32_at(&note, 4)?);
                let content_at = at + 12 + name.next_multiple_of(4);
                if name == 4 && note.get(8..) == Some(&BUILD_ID_NOTE) {
                    found = Some((start.wrapping_add(content_at), content));
                }
                at = content_at + content.next_multiple_of(4);
            }
            Ok(())
        });
        read.ok().and(found)
    }

    /// Whether an address is within the range of its segments.
    #[must_use]
    pub(crate) fn covers(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// The search table of `.eh_frame_hdr`, which is in memory like the file.
    ///
    /// # Errors
    ///
    /// [`Error::NO_INFO`] if there is none, or not in the form that all linkers use; errors of the
    /// memory.
    pub fn table<M: Memory>(&self, memory: &M) -> Result<DynInfo, Error> {
        let hdr = self.eh_frame_hdr.unwrap_or(0);
        match search_table(memory, hdr, self.start..self.end) {
            Err(Error::BAD_VERSION) => Err(Error::NO_INFO),
            table => table,
        }
    }
}

/// The search table of the `.eh_frame_hdr` at an address, for the code in a range; there is none at
/// address 0.
///
/// # Errors
///
/// [`Error::NO_INFO`] if there is none, [`Error::BAD_VERSION`] if it is not in the form that all
/// linkers use; errors of the memory.
pub(crate) fn search_table<M: Memory>(
    memory: &M,
    hdr: u64,
    code: Range<u64>,
) -> Result<DynInfo, Error> {
    if hdr == 0 {
        return Err(Error::NO_INFO);
    }
    let head = copy::<12, M>(memory, hdr)?;
    // Version 1; a 4-byte pointer to `.eh_frame`, a 4-byte count, and the table: 4-byte distances
    // from here (LSB, "The .eh_frame_hdr section").
    let [1, pointer, 0x03, 0x3b, ..] = head else {
        return Err(Error::BAD_VERSION);
    };
    if !matches!(pointer & 0x0f, 0x03 | 0x0b) {
        return Err(Error::BAD_VERSION);
    }
    Ok(DynInfo {
        start_ip: code.start,
        end_ip: code.end,
        format: abi::FORMAT_REMOTE_TABLE,
        table: RemoteTable {
            name_ptr: 0,
            segbase: hdr,
            table_len: u64::from(u32_at(&head, 8)?),
            table_data: hdr.wrapping_add(12),
        },
        ..DynInfo::NONE
    })
}

/// Passes the program headers of the file that begins at `base` to `visit`.
fn for_each_segment<M: Memory>(
    memory: &M,
    base: u64,
    mut visit: impl FnMut(&[u8; PROGRAM_HEADER]) -> Result<(), Error>,
) -> Result<(), Error> {
    let header = copy::<ELF_HEADER_BYTES, M>(memory, base)?;
    check(&header)?;
    let at = base.wrapping_add(u64_at(&header, 32)?);
    let count = u16_at(&header, 56)?;
    let mut headers = (0..u64::from(count)).map(|index| at.wrapping_add(index * 56));
    headers.try_for_each(|at| visit(&copy(memory, at)?))
}

/// The function that begins last at or before a link-time address, and the distance in bytes; from
/// all symbol tables of a file.
#[must_use]
pub fn function(file: &[u8], vaddr: u64) -> Option<(&[u8], u64)> {
    let (name_at, distance) = find_function(&FileBytes(file), vaddr, &mut [0; 64 * SYMBOL])?;
    let name = file.get(usize::try_from(name_at).ok()?..)?;
    Some((name.split(|byte| *byte == 0).next()?, distance))
}

/// The same for a file as memory, with its offsets as addresses, read through `buffer`. Returns the
/// offset of the name, and the distance.
#[must_use]
pub(crate) fn find_function<M: Memory>(
    file: &M,
    vaddr: u64,
    buffer: &mut [u8],
) -> Option<(u64, u64)> {
    let header = copy::<ELF_HEADER_BYTES, M>(file, 0).ok()?;
    check(&header).ok()?;
    let (at, count) = (u64_at(&header, 40).ok()?, u16_at(&header, 60).ok()?);
    let section = |number: u32| {
        let at = at.wrapping_add(u64::from(number) * SECTION_HEADER as u64);
        copy::<SECTION_HEADER, M>(file, at).ok()
    };
    let tables = (0..u32::from(count)).filter_map(section);
    let tables = tables.filter(|table| matches!(u32_at(table, 4), Ok(SHT_SYMTAB | SHT_DYNSYM)));
    let mut nearest: Option<(u64, u64)> = None;
    for table in tables {
        let Some(names) = section(u32_at(&table, 40).ok()?) else {
            continue;
        };
        let (names_at, names_size) = (u64_at(&names, 24).ok()?, u64_at(&names, 32).ok()?);
        // The readable part of a truncated table counts.
        let _ = for_each_symbol(file, &table, buffer, |symbol| {
            let name = u64::from(u32_at(symbol, 0)?);
            if let Some(before) = distance(symbol, vaddr)
                && nearest.is_none_or(|(_, known)| before < known)
                && name < names_size
            {
                nearest = Some((names_at.wrapping_add(name), before));
            }
            Ok(())
        });
    }
    nearest
}

/// Passes the symbols of a table to `visit`.
fn for_each_symbol<M: Memory>(
    file: &M,
    table: &[u8; SECTION_HEADER],
    buffer: &mut [u8],
    mut visit: impl FnMut(&[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let (mut at, mut left) = (u64_at(table, 24)?, u64_at(table, 32)?.min(MAX_TABLE_BYTES));
    let room = buffer.len() / SYMBOL * SYMBOL;
    while left >= SYMBOL as u64 {
        let length = usize::try_from(left).map_or(room, |left| left.min(room));
        let chunk = buffer.get_mut(..length).ok_or(Error::INVALID)?;
        let read = file.read(RuntimeAddr(at), chunk);
        read.map_err(|_| Error::INVALID)?;
        chunk.chunks_exact(SYMBOL).try_for_each(&mut visit)?;
        at = at.wrapping_add(length as u64);
        left = left.saturating_sub(length as u64);
    }
    Ok(())
}

/// The bytes of a file, as memory with its offsets as addresses.
#[derive(Debug)]
pub(crate) struct FileBytes<'f>(pub(crate) &'f [u8]);

impl Memory for FileBytes<'_> {
    fn read(&self, addr: RuntimeAddr, into: &mut [u8]) -> Result<(), Unreadable> {
        let at = usize::try_from(addr.0).ok();
        let there = at.and_then(|at| self.0.get(at..)?.get(..into.len()));
        into.copy_from_slice(there.ok_or(Unreadable::unmapped(addr))?);
        Ok(())
    }
}

/// The distance from the start of a symbol's function to an address behind it, if the symbol is a
/// function.
fn distance(symbol: &[u8], vaddr: u64) -> Option<u64> {
    let is_function = symbol.get(4)? & 0xf == STT_FUNC;
    let is_defined = u16_at(symbol, 6).ok()? != 0;
    let before = vaddr.checked_sub(u64_at(symbol, 8).ok()?);
    before.filter(|_| is_function && is_defined)
}

fn name<'f>(names: &'f [u8], symbol: &[u8]) -> Option<&'f [u8]> {
    let at = usize::try_from(u32_at(symbol, 0).ok()?).ok()?;
    names.get(at..)?.split(|byte| *byte == 0).next()
}

fn sections(file: &[u8]) -> Option<core::slice::ChunksExact<'_, u8>> {
    let at = usize::try_from(u64_at(file, 40).ok()?).ok()?;
    let count = usize::from(u16_at(file, 60).ok()?);
    let headers = file.get(at..)?.get(..count.checked_mul(SECTION_HEADER)?)?;
    Some(headers.chunks_exact(SECTION_HEADER))
}

fn contents<'f>(file: &'f [u8], section: &[u8]) -> Option<&'f [u8]> {
    let at = usize::try_from(u64_at(section, 24).ok()?).ok()?;
    let size = usize::try_from(u64_at(section, 32).ok()?).ok()?;
    file.get(at..)?.get(..size)
}

/// The bytes of a file's section with this name, if they are uncompressed.
#[must_use]
pub(crate) fn section<'f>(file: &'f [u8], wanted: &[u8]) -> Option<&'f [u8]> {
    check(file).ok()?;
    let headers = sections(file)?;
    let names = headers.clone().nth(usize::from(u16_at(file, 62).ok()?))?;
    let names = contents(file, names)?;
    let header = headers
        .clone()
        .find(|header| name(names, header) == Some(wanted))?;
    let (kind, flags) = (u32_at(header, 4).ok()?, u64_at(header, 8).ok()?);
    let is_there = kind != SHT_NOBITS && flags & SHF_COMPRESSED == 0;
    contents(file, header).filter(|_| is_there)
}

/// Checks that it is a 64-bit ELF file of x86-64.
pub(crate) fn check(header: &[u8]) -> Result<(), Error> {
    let is_ours = header.starts_with(b"\x7fELF\x02\x01") && u16_at(header, 18)? == 62;
    if is_ours && u16_at(header, 54)? == 56 {
        Ok(())
    } else {
        Err(Error::NO_INFO)
    }
}

fn copy<const N: usize, M: Memory>(memory: &M, address: u64) -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    let read = memory.read(RuntimeAddr(address), &mut bytes);
    read.map(|()| bytes).map_err(|_| Error::INVALID)
}

fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], Error> {
    let bytes = bytes.get(at..).and_then(|rest| rest.first_chunk());
    bytes.copied().ok_or(Error::NO_INFO)
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Result<u16, Error> {
    bytes_at(bytes, at).map(u16::from_le_bytes)
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Result<u32, Error> {
    bytes_at(bytes, at).map(u32::from_le_bytes)
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Result<u64, Error> {
    bytes_at(bytes, at).map(u64::from_le_bytes)
}
