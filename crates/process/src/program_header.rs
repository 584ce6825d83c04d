//! Program headers, in files and in memory (gABI, "Program Header").

use unspool_rows::{LoadBias, Memory, RuntimeAddr, Unreadable, Vaddr};

use crate::little_endian::{u16_at, u32_at, u64_at};

pub(crate) const PT_LOAD: u32 = 1;
pub(crate) const PT_DYNAMIC: u32 = 2;
pub(crate) const PT_NOTE: u32 = 4;

pub(crate) const PF_X: u32 = 1;
pub(crate) const PF_W: u32 = 2;
pub(crate) const PF_R: u32 = 4;

const HEADER_SIZE: usize = 64;
const ET_EXEC: u16 = 2;
const ET_DYN: u16 = 3;

/// Real modules have about 15 program headers.
const MAX_PROGRAM_HEADERS: u16 = 256;

/// One program header of an ELF64 little-endian file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProgramHeader {
    pub(crate) kind: u32,
    pub(crate) flags: u32,
    pub(crate) offset: u64,
    pub(crate) vaddr: Vaddr,
    pub(crate) file_size: u64,
    pub(crate) memory_size: u64,
    pub(crate) align: u64,
}

impl ProgramHeader {
    /// Its size in files, in bytes.
    pub(crate) const SIZE: u16 = 56;

    /// Reads one entry of the table.
    pub(crate) fn read(entry: &[u8]) -> Option<ProgramHeader> {
        Some(ProgramHeader {
            kind: u32_at(entry, 0)?,
            flags: u32_at(entry, 4)?,
            offset: u64_at(entry, 8)?,
            vaddr: Vaddr(u64_at(entry, 16)?),
            file_size: u64_at(entry, 32)?,
            memory_size: u64_at(entry, 40)?,
            align: u64_at(entry, 48)?,
        })
    }

    /// Whether it is a loadable segment.
    pub(crate) fn is_load(&self) -> bool {
        self.kind == PT_LOAD
    }
}

/// Why memory has no program headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ImageProblem {
    Unreadable(Unreadable),
    /// There is no header of an ELF64 little-endian executable or shared object.
    NotElf,
}

impl From<Unreadable> for ImageProblem {
    fn from(unreadable: Unreadable) -> Self {
        ImageProblem::Unreadable(unreadable)
    }
}

/// The program headers of the module with its ELF header at `base`.
pub(crate) fn of_image(
    memory: &dyn Memory,
    base: RuntimeAddr,
) -> Result<Vec<ProgramHeader>, ImageProblem> {
    let mut header = [0; HEADER_SIZE];
    memory.read(base, &mut header)?;
    let (table, count) = table(&header).ok_or(ImageProblem::NotElf)?;
    let mut bytes = vec![0; usize::from(count) * usize::from(ProgramHeader::SIZE)];
    memory.read(RuntimeAddr(base.0.wrapping_add(table)), &mut bytes)?;
    Ok(entries(&bytes))
}

/// The program headers of an executable or shared object; empty for another file.
pub(crate) fn of_file(bytes: &[u8]) -> Vec<ProgramHeader> {
    let header = bytes.first_chunk::<HEADER_SIZE>();
    let held = header.and_then(table).and_then(|(at, count)| {
        let size = usize::from(count) * usize::from(ProgramHeader::SIZE);
        bytes.get(usize::try_from(at).ok()?..)?.get(..size)
    });
    held.map(entries).unwrap_or_default()
}

/// The bias of a module with its ELF header, the first byte of its file, at `base`.
pub(crate) fn bias(headers: &[ProgramHeader], base: RuntimeAddr) -> Option<LoadBias> {
    let first = headers.iter().find(|header| header.is_load())?;
    let first_byte = first.vaddr.0.wrapping_sub(first.offset);
    Some(LoadBias(base.0.wrapping_sub(first_byte)))
}

/// `e_phoff` and `e_phnum` of the ELF header.
fn table(header: &[u8; HEADER_SIZE]) -> Option<(u64, u16)> {
    let is_elf = header.starts_with(b"\x7fELF\x02\x01");
    let is_module = [ET_EXEC, ET_DYN].contains(&u16_at(header, 16)?);
    let is_usable = is_elf && is_module && u16_at(header, 54)? == ProgramHeader::SIZE;
    let count = u16_at(header, 56)?.min(MAX_PROGRAM_HEADERS);
    is_usable.then_some((u64_at(header, 32)?, count))
}

fn entries(table: &[u8]) -> Vec<ProgramHeader> {
    let entries = table.chunks_exact(usize::from(ProgramHeader::SIZE));
    entries.filter_map(ProgramHeader::read).collect()
}
