//! The ELF file's inputs for CTF and BTF, and the properties of its machine.

use unspool_c_types::{Convention, ElfContext, ElfStrings, Endian};
use unspool_elf::{ElfFile, ModuleError};
use unspool_rows::Arch;
use unspool_rows::arch::AddressSize;

/// The byte order of a file's numbers.
#[must_use]
pub fn endian(file: &ElfFile) -> Endian {
    match file.abi().endian {
        unspool_rows::Endian::Little => Endian::Little,
        unspool_rows::Endian::Big => Endian::Big,
    }
}

/// The tables of an ELF file for CTF.
///
/// # Errors
///
/// Its strings or symbols cannot be read.
pub fn elf_context(file: &ElfFile) -> Result<ElfContext<'_>, ModuleError> {
    let data = |name| {
        let section = file.section_named(name)?;
        Ok(section.map_or(&[][..], |section| section.data))
    };
    Ok(ElfContext {
        strings: ElfStrings {
            strtab: data(".strtab")?,
            dynstr: data(".dynstr")?,
        },
        symtab: data(".symtab")?,
        dynsym: data(".dynsym")?,
        symbol_versions: data(".gnu.version")?,
        version_definitions: data(".gnu.version_d")?,
        endian: endian(file),
        is_64: file.word() == AddressSize::W64,
    })
}

/// The calling convention of a machine.
#[must_use]
pub fn convention(arch: Arch) -> Option<Convention> {
    match arch {
        Arch::X86_64 => Some(Convention::Amd64),
        Arch::Aarch64 => Some(Convention::Aarch64),
        _ => None,
    }
}
