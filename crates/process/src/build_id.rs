//! The build ID of a module, read from the memory where it is loaded.

use unspool_rows::{Memory, RuntimeAddr, Unreadable};

use crate::little_endian::{u16_at, u32_at, u64_at};
use crate::note::ElfNotes;

const HEADER_SIZE: usize = 64;
const PROGRAM_HEADER_SIZE: u16 = 56;
const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const NT_GNU_BUILD_ID: u32 = 3;

/// Real modules have about 15 program headers.
const MAX_PROGRAM_HEADERS: u16 = 256;
/// Real note segments have about 100 bytes; one from a kernel module loader may have more.
const MAX_NOTES: u64 = 64 << 10;

/// Why the build ID of a module in memory is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoBuildId {
    /// The memory that holds the headers or the notes cannot be read. In a core file it was
    /// often not recorded (core(5), bit 4 of `coredump_filter`).
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// The first byte of the mapped file is not mapped.
    #[error("the module of the mapping at {start} has no mapped ELF header")]
    NoHeader {
        /// The start of the mapping in question.
        start: RuntimeAddr,
    },
    /// There is no ELF64 little-endian header.
    #[error("no ELF64 little-endian header at {addr}")]
    NotElf {
        /// The expected address.
        addr: RuntimeAddr,
    },
    /// The module has no build ID note; link it with `--build-id` to have one.
    #[error("the module at {addr} has no build ID")]
    Absent {
        /// The address of its ELF header.
        addr: RuntimeAddr,
    },
}

#[derive(Debug, Clone, Copy)]
struct ProgramHeader {
    kind: u32,
    offset: u64,
    vaddr: u64,
    size: u64,
    align: u64,
}

/// Reads the build ID of the module with its ELF header at `base`.
pub(crate) fn read(memory: &dyn Memory, base: RuntimeAddr) -> Result<Vec<u8>, NoBuildId> {
    let headers = program_headers(memory, base)?;
    let absent = NoBuildId::Absent { addr: base };
    let first = headers
        .iter()
        .find(|header| header.kind == PT_LOAD)
        .ok_or(absent)?;
    // `base` is the address of the file's first byte, where the first segment begins.
    let first_byte = first.vaddr.wrapping_sub(first.offset);
    for notes in headers.iter().filter(|header| header.kind == PT_NOTE) {
        let at = base.0.wrapping_add(notes.vaddr.wrapping_sub(first_byte));
        if let Some(id) = in_notes(memory, RuntimeAddr(at), notes)? {
            return Ok(id);
        }
    }
    Err(absent)
}

fn program_headers(
    memory: &dyn Memory,
    base: RuntimeAddr,
) -> Result<Vec<ProgramHeader>, NoBuildId> {
    let mut header = [0; HEADER_SIZE];
    memory.read(base, &mut header)?;
    let not_elf = NoBuildId::NotElf { addr: base };
    let (table, count) = program_header_table(&header).ok_or(not_elf)?;
    let size = usize::from(count) * usize::from(PROGRAM_HEADER_SIZE);
    let mut bytes = vec![0; size];
    memory.read(RuntimeAddr(base.0.wrapping_add(table)), &mut bytes)?;
    let entries = bytes.chunks_exact(usize::from(PROGRAM_HEADER_SIZE));
    Ok(entries.filter_map(program_header).collect())
}

/// `e_phoff` and `e_phnum` of an ELF64 little-endian header.
fn program_header_table(header: &[u8]) -> Option<(u64, u16)> {
    let ident = header.get(..6)?;
    let entry_size = u16_at(header, 54)?;
    let usable = ident == b"\x7fELF\x02\x01" && entry_size == PROGRAM_HEADER_SIZE;
    let count = u16_at(header, 56)?.min(MAX_PROGRAM_HEADERS);
    usable.then_some((u64_at(header, 32)?, count))
}

fn program_header(bytes: &[u8]) -> Option<ProgramHeader> {
    Some(ProgramHeader {
        kind: u32_at(bytes, 0)?,
        offset: u64_at(bytes, 8)?,
        vaddr: u64_at(bytes, 16)?,
        size: u64_at(bytes, 32)?,
        align: u64_at(bytes, 48)?,
    })
}

fn in_notes(
    memory: &dyn Memory,
    addr: RuntimeAddr,
    header: &ProgramHeader,
) -> Result<Option<Vec<u8>>, Unreadable> {
    let size = usize::try_from(header.size.min(MAX_NOTES)).unwrap_or(0);
    let mut bytes = vec![0; size];
    memory.read(addr, &mut bytes)?;
    let notes = ElfNotes::new(&bytes, header.align).map_while(Result::ok);
    let mut ids = notes.filter(|note| note.name == b"GNU" && note.kind == NT_GNU_BUILD_ID);
    Ok(ids.next().map(|note| note.desc.to_vec()))
}
