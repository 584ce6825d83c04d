//! The build ID of a module, read from the memory where it is loaded.

use unspool_rows::{LoadBias, Memory, RuntimeAddr, Unreadable};

use crate::note::ElfNotes;
use crate::program_header::{ImageProblem, PT_NOTE, ProgramHeader, bias, of_image};

const NT_GNU_BUILD_ID: u32 = 3;

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

impl NoBuildId {
    fn from_image(problem: ImageProblem, addr: RuntimeAddr) -> NoBuildId {
        match problem {
            ImageProblem::Unreadable(unreadable) => NoBuildId::Unreadable(unreadable),
            ImageProblem::NotElf => NoBuildId::NotElf { addr },
        }
    }
}

/// Reads the build ID of the module with its ELF header at `base`.
pub(crate) fn read(memory: &dyn Memory, base: RuntimeAddr) -> Result<Vec<u8>, NoBuildId> {
    let headers = of_image(memory, base).map_err(|error| NoBuildId::from_image(error, base))?;
    let absent = NoBuildId::Absent { addr: base };
    let bias = bias(&headers, base).ok_or(absent)?;
    of_headers(memory, &headers, bias)?.ok_or(absent)
}

/// Reads the build ID of a module with these program headers.
pub(crate) fn of_headers(
    memory: &dyn Memory,
    headers: &[ProgramHeader],
    bias: LoadBias,
) -> Result<Option<Vec<u8>>, Unreadable> {
    for notes in headers.iter().filter(|header| header.kind == PT_NOTE) {
        let id = in_notes(memory, bias.to_runtime(notes.vaddr), notes)?;
        if id.is_some() {
            return Ok(id);
        }
    }
    Ok(None)
}

fn in_notes(
    memory: &dyn Memory,
    addr: RuntimeAddr,
    header: &ProgramHeader,
) -> Result<Option<Vec<u8>>, Unreadable> {
    let size = usize::try_from(header.file_size.min(MAX_NOTES)).unwrap_or(0);
    let mut bytes = vec![0; size];
    memory.read(addr, &mut bytes)?;
    let notes = ElfNotes::new(&bytes, header.align).map_while(Result::ok);
    let mut ids = notes.filter(|note| note.name == b"GNU" && note.kind == NT_GNU_BUILD_ID);
    Ok(ids.next().map(|note| note.desc.to_vec()))
}
