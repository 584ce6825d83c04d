//! The ELF header and the two header tables, read once into plain values. The class and byte order
//! of the file do not matter outside this module.

use std::path::Path;

use object::Endianness;
use object::elf;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use unspool_rows::arch::AddressSize;
use unspool_rows::{Abi, Arch, Endian};

use crate::error::ModuleError;

/// The kind of ELF file (`e_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ElfKind {
    /// `ET_REL`: an object file or a kernel module.
    Relocatable,
    /// `ET_EXEC`: an executable linked for fixed addresses.
    Executable,
    /// `ET_DYN`: a shared object or a position-independent executable.
    Dynamic,
    /// `ET_CORE`: a core file.
    Core,
    /// Any other `e_type`.
    Other(u16),
}

/// One program header, with its fields widened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Phdr {
    pub(crate) kind: u32,
    pub(crate) flags: u32,
    pub(crate) offset: u64,
    pub(crate) vaddr: u64,
    pub(crate) paddr: u64,
    pub(crate) file_size: u64,
    pub(crate) mem_size: u64,
    pub(crate) align: u64,
}

/// One section header, with its fields widened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shdr {
    pub(crate) name: u32,
    pub(crate) kind: u32,
    pub(crate) flags: u64,
    pub(crate) addr: u64,
    pub(crate) offset: u64,
    pub(crate) size: u64,
    pub(crate) link: u32,
    pub(crate) info: u32,
    pub(crate) align: u64,
    pub(crate) entry_size: u64,
}

impl Shdr {
    pub(crate) fn has_flag(&self, flag: elf::SectionFlags) -> bool {
        self.flags & flag.0 != 0
    }

    pub(crate) fn is(&self, kind: elf::SectionType) -> bool {
        self.kind == kind.0
    }

    /// Whether the section has a place in the address space. `.tbss` has none, although its flags
    /// say so: its addresses belong to the section that follows.
    pub(crate) fn is_allocated(&self) -> bool {
        let thread_bss = self.has_flag(elf::SHF_TLS) && self.is(elf::SHT_NOBITS);
        self.has_flag(elf::SHF_ALLOC) && !thread_bss
    }
}

/// The contents of the three headers.
#[derive(Debug)]
pub(crate) struct ElfHeaders {
    pub(crate) abi: Abi,
    pub(crate) address_size: AddressSize,
    pub(crate) kind: ElfKind,
    pub(crate) entry: u64,
    pub(crate) program_header_offset: u64,
    pub(crate) segments: Result<Vec<Phdr>, ModuleError>,
    pub(crate) sections: Result<Vec<Shdr>, ModuleError>,
    pub(crate) section_names: u32,
}

/// Reads the headers. Only the ELF header itself must be complete: an unreadable header table is an
/// error of that table.
pub(crate) fn parse(file: &Path, data: &[u8]) -> Result<ElfHeaders, ModuleError> {
    let Some(ident) = data.get(..elf::ELFMAG.len() + 3) else {
        return Err(too_short(file, data));
    };
    if !ident.starts_with(&elf::ELFMAG) {
        return Err(not_elf(file, data));
    }
    let [.., class, order, version] = ident else {
        return Err(too_short(file, data));
    };
    let unsupported = |what, offset, value: u8| ModuleError::Unsupported {
        file: file.to_path_buf(),
        what,
        offset,
        value: u64::from(value),
    };
    if !(1..=2).contains(order) {
        return Err(unsupported("the byte order (EI_DATA)", 5, *order));
    }
    if *version != 1 {
        return Err(unsupported("the ELF version (EI_VERSION)", 6, *version));
    }
    match class {
        1 => parse_class::<elf::FileHeader32<Endianness>>(file, data, AddressSize::W32),
        2 => parse_class::<elf::FileHeader64<Endianness>>(file, data, AddressSize::W64),
        other => Err(unsupported("the file class (EI_CLASS)", 4, *other)),
    }
}

fn too_short(file: &Path, data: &[u8]) -> ModuleError {
    if data.is_empty() {
        ModuleError::Empty {
            file: file.to_path_buf(),
        }
    } else if elf::ELFMAG.starts_with(data) || data.starts_with(&elf::ELFMAG) {
        truncated(file, data, "the ELF header", 0, 64)
    } else {
        not_elf(file, data)
    }
}

fn not_elf(file: &Path, data: &[u8]) -> ModuleError {
    let file = file.to_path_buf();
    if is_linker_script(data) {
        return ModuleError::LinkerScript { file };
    }
    let start = data.iter().take(8).copied().collect();
    ModuleError::NotElf { file, start }
}

/// Whether a text begins, after comments, like a linker script installed as a library (GNU ld,
/// "File Commands"): glibc's `libc.so`, `libncurses.so`.
fn is_linker_script(data: &[u8]) -> bool {
    let mut rest = data.trim_ascii_start();
    while let Some(comment) = rest.strip_prefix(b"/*") {
        let Some(end) = comment.windows(2).position(|two| two == b"*/") else {
            return false;
        };
        let behind = comment.get(end + 2..).unwrap_or_default();
        rest = behind.trim_ascii_start();
    }
    let is_command = |command: &&[u8]| {
        let arguments = rest.strip_prefix(*command).map(<[u8]>::trim_ascii_start);
        arguments.is_some_and(|arguments| arguments.starts_with(b"("))
    };
    [&b"INPUT"[..], b"GROUP", b"OUTPUT_FORMAT"]
        .iter()
        .any(is_command)
}

fn truncated(file: &Path, data: &[u8], what: &str, offset: u64, length: u64) -> ModuleError {
    ModuleError::Truncated {
        file: file.to_path_buf(),
        what: what.to_owned(),
        offset,
        length,
        end: data.len() as u64,
    }
}

fn parse_class<E: FileHeader<Endian = Endianness>>(
    file: &Path,
    data: &[u8],
    address_size: AddressSize,
) -> Result<ElfHeaders, ModuleError> {
    let header_size = size_of::<E>() as u64;
    let header =
        E::parse(data).map_err(|_| truncated(file, data, "the ELF header", 0, header_size))?;
    let endian = header.endian().unwrap_or_default();
    let arch = Arch::from_elf(header.e_machine(endian).0, address_size);
    Ok(ElfHeaders {
        abi: Abi {
            arch,
            endian: if header.is_big_endian() {
                Endian::Big
            } else {
                Endian::Little
            },
        },
        address_size,
        kind: kind(header.e_type(endian)),
        entry: header.e_entry(endian).into(),
        program_header_offset: header.e_phoff(endian).into(),
        segments: segments(file, data, header, endian),
        sections: sections(file, data, header, endian),
        section_names: header
            .section_strings_index(endian, data)
            .map_or(0, index_u32),
    })
}

fn index_u32(index: object::SectionIndex) -> u32 {
    u32::try_from(index.0).unwrap_or(0)
}

fn kind(value: elf::FileType) -> ElfKind {
    match value {
        elf::ET_REL => ElfKind::Relocatable,
        elf::ET_EXEC => ElfKind::Executable,
        elf::ET_DYN => ElfKind::Dynamic,
        elf::ET_CORE => ElfKind::Core,
        other => ElfKind::Other(other.0),
    }
}

fn segments<E: FileHeader<Endian = Endianness>>(
    file: &Path,
    data: &[u8],
    header: &E,
    endian: Endianness,
) -> Result<Vec<Phdr>, ModuleError> {
    let offset: u64 = header.e_phoff(endian).into();
    let table = header.program_headers(endian, data).map_err(|error| {
        let count = header.phnum(endian, data).unwrap_or_default();
        let what = "the program header table";
        bad_table(
            file,
            data,
            what,
            offset,
            (count, size_of::<E::ProgramHeader>()),
            &error,
        )
    })?;
    let widen = |p: &E::ProgramHeader| Phdr {
        kind: p.p_type(endian).0,
        flags: p.p_flags(endian).0,
        offset: p.p_offset(endian).into(),
        vaddr: p.p_vaddr(endian).into(),
        paddr: p.p_paddr(endian).into(),
        file_size: p.p_filesz(endian).into(),
        mem_size: p.p_memsz(endian).into(),
        align: p.p_align(endian).into(),
    };
    Ok(table.iter().map(widen).collect())
}

fn sections<E: FileHeader<Endian = Endianness>>(
    file: &Path,
    data: &[u8],
    header: &E,
    endian: Endianness,
) -> Result<Vec<Shdr>, ModuleError> {
    let offset: u64 = header.e_shoff(endian).into();
    let table = header.section_headers(endian, data).map_err(|error| {
        let count = header.shnum(endian, data).unwrap_or_default();
        let what = "the section header table";
        bad_table(
            file,
            data,
            what,
            offset,
            (count, size_of::<E::SectionHeader>()),
            &error,
        )
    })?;
    let widen = |s: &E::SectionHeader| Shdr {
        name: s.sh_name(endian),
        kind: s.sh_type(endian).0,
        flags: s.sh_flags(endian).0,
        addr: s.sh_addr(endian).into(),
        offset: s.sh_offset(endian).into(),
        size: s.sh_size(endian).into(),
        link: s.sh_link(endian),
        info: s.sh_info(endian),
        align: s.sh_addralign(endian).into(),
        entry_size: s.sh_entsize(endian).into(),
    };
    Ok(table.iter().map(widen).collect())
}

/// A header table that cannot be read: usually the file was cut short.
fn bad_table(
    file: &Path,
    data: &[u8],
    what: &str,
    offset: u64,
    (count, entry): (u32, usize),
    error: &object::read::Error,
) -> ModuleError {
    let length = u64::from(count.max(1)) * entry as u64;
    if offset.saturating_add(length) > data.len() as u64 {
        return truncated(file, data, what, offset, length);
    }
    ModuleError::Malformed {
        file: file.to_path_buf(),
        what: what.to_owned(),
        offset,
        value: u64::from(count),
        reason: error.to_string(),
    }
}
