//! The ELF header and the program headers of a core file (gABI, "ELF Header", "Program
//! Header").

use unspool_rows::Arch;
use unspool_rows::arch::AddressSize;

use super::{CoreError, CoreProblem};
use crate::little_endian::{u16_at, u32_at, u64_at};
use crate::program_header::ProgramHeader;
use crate::registers;

const HEADER_SIZE: u64 = 64;
const ET_CORE: u16 = 4;
/// `e_phnum` when there are 65535 program headers or more.
const PN_XNUM: u16 = 0xffff;

/// The contents of the headers.
#[derive(Debug)]
pub(super) struct CoreHeaders {
    pub(super) arch: Arch,
    pub(super) segments: Vec<ProgramHeader>,
    pub(super) problem: Option<CoreProblem>,
}

/// Reads the ELF header and all program headers in the file.
pub(super) fn read(bytes: &[u8]) -> Result<CoreHeaders, CoreError> {
    check_ident(bytes)?;
    let too_short = CoreError::TooShort {
        length: length(bytes),
        needed: HEADER_SIZE,
    };
    let header: &[u8; 64] = bytes.first_chunk().ok_or(too_short)?;
    let fields = ElfHeaderFields::read(header).ok_or(CoreError::NotElf)?;
    let arch = fields.check()?;
    let (declared, problem) = fields.count(bytes);
    let segments = read_segments(bytes, fields.table, declared);
    let needed = fields.table.saturating_add(ProgramHeader::SIZE.into());
    if segments.is_empty() && declared > 0 {
        return Err(CoreError::TooShort {
            length: length(bytes),
            needed,
        });
    }
    let present = u32::try_from(segments.len()).unwrap_or(u32::MAX);
    let cut = (present < declared).then_some(CoreProblem::ProgramHeaders { declared, present });
    Ok(CoreHeaders {
        arch,
        segments,
        problem: problem.or(cut),
    })
}

/// The fields of the ELF header that a core file needs.
#[derive(Debug, Clone, Copy)]
struct ElfHeaderFields {
    kind: u16,
    machine: u16,
    table: u64,
    sections: u64,
    entry_size: u16,
    count: u16,
}

impl ElfHeaderFields {
    fn read(header: &[u8]) -> Option<ElfHeaderFields> {
        Some(ElfHeaderFields {
            kind: u16_at(header, 16)?,
            machine: u16_at(header, 18)?,
            table: u64_at(header, 32)?,
            sections: u64_at(header, 40)?,
            entry_size: u16_at(header, 54)?,
            count: u16_at(header, 56)?,
        })
    }

    fn check(&self) -> Result<Arch, CoreError> {
        if self.kind != ET_CORE {
            return Err(CoreError::NotCore { found: self.kind });
        }
        let arch = Arch::from_elf(self.machine, AddressSize::W64);
        if registers::layout(arch).is_none() {
            return Err(CoreError::Machine {
                machine: self.machine,
            });
        }
        if self.entry_size != ProgramHeader::SIZE {
            return Err(CoreError::ProgramHeaderSize {
                found: self.entry_size,
            });
        }
        Ok(arch)
    }

    /// The number of program headers. If section header 0 should give it and is missing, the number
    /// is at least 65535.
    fn count(&self, bytes: &[u8]) -> (u32, Option<CoreProblem>) {
        if self.count != PN_XNUM {
            return (self.count.into(), None);
        }
        let sh_info = usize::try_from(self.sections)
            .ok()
            .and_then(|at| at.checked_add(44));
        match sh_info.and_then(|at| u32_at(bytes, at)) {
            Some(count) if self.sections != 0 => (count, None),
            _ => (
                self.count.into(),
                Some(CoreProblem::HeaderCount {
                    offset: self.sections,
                }),
            ),
        }
    }
}

fn check_ident(bytes: &[u8]) -> Result<(), CoreError> {
    if bytes.is_empty() {
        return Err(CoreError::Empty);
    }
    if !bytes.starts_with(b"\x7fELF") {
        return Err(CoreError::NotElf);
    }
    let too_short = CoreError::TooShort {
        length: length(bytes),
        needed: HEADER_SIZE,
    };
    let [class, encoding] = *bytes
        .get(4..6)
        .and_then(|two| two.first_chunk())
        .ok_or(too_short)?;
    if class != 2 {
        return Err(CoreError::Class { class });
    }
    if encoding != 1 {
        return Err(CoreError::Encoding { encoding });
    }
    Ok(())
}

/// At most `declared` program headers: only those in the file, so a wrong number costs nothing.
fn read_segments(bytes: &[u8], table: u64, declared: u32) -> Vec<ProgramHeader> {
    let table = usize::try_from(table)
        .ok()
        .and_then(|table| bytes.get(table..))
        .unwrap_or(&[]);
    let entries = table.chunks_exact(usize::from(ProgramHeader::SIZE));
    let declared = usize::try_from(declared).unwrap_or(usize::MAX);
    entries
        .take(declared)
        .map_while(ProgramHeader::read)
        .collect()
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
