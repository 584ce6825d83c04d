//! Sections: their headers, and the bytes of each.

use std::borrow::Cow;

use object::elf;
use unspool_rows::Vaddr;

use crate::elf::ElfFile;
use crate::error::ModuleError;
use crate::header::Shdr;
use crate::relocate::RelocationError;

/// A section header, without the bytes of the section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SectionInfo<'a> {
    /// The index in the section header table.
    pub index: usize,
    /// The name; invalid UTF-8 in it is replaced.
    pub name: Cow<'a, str>,
    /// The section type (`sh_type`).
    pub kind: u32,
    /// The link-time address; `None` if the section is not loaded.
    pub address: Option<Vaddr>,
    /// Bytes in memory (for a section that is not loaded: in the file, perhaps compressed).
    pub size: u64,
    /// The file offset of its first byte, in bytes.
    pub offset: u64,
    /// Whether the file holds its bytes: not those of `.bss`, nor of `.text` in a separate debug
    /// file.
    pub has_data: bool,
    /// May be written at run time.
    pub writable: bool,
    /// Holds machine code.
    pub executable: bool,
}

/// What located a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SectionSource {
    /// A program header, or the pointer in `.eh_frame_hdr`: the run-time unwinder uses it.
    ProgramHeader,
    /// Its name or type in the section header table.
    SectionHeader,
}

/// A section and its bytes: decompressed, and relocated in a relocatable file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section<'a> {
    /// The name; empty if the file has no section headers. Invalid UTF-8 is replaced.
    pub name: Cow<'a, str>,
    /// The link-time address of the first byte; 0 if the section is not loaded.
    pub address: Vaddr,
    /// The file offset of the first byte, in bytes. The bytes of a compressed section differ from
    /// `data`.
    pub offset: u64,
    /// The bytes. Without section headers they may extend behind the section, to the end of the
    /// segment.
    pub data: &'a [u8],
    /// The relocations of a relocatable file that could not be applied.
    pub problems: &'a [RelocationError],
    /// What located the section.
    pub source: SectionSource,
}

/// Whether the section holds machine code and is given an address.
pub(crate) fn is_code(header: &Shdr) -> bool {
    header.is_allocated() && header.has_flag(elf::SHF_EXECINSTR) && header.size > 0
}

impl ElfFile {
    /// All sections, in the order of their headers, without the empty one at index 0.
    pub fn sections(&self) -> impl Iterator<Item = SectionInfo<'_>> {
        self.section_headers()
            .iter()
            .enumerate()
            .skip(1)
            .map(|(index, header)| SectionInfo {
                index,
                name: self.section_name(index),
                kind: header.kind,
                address: header
                    .has_flag(elf::SHF_ALLOC)
                    .then_some(Vaddr(header.addr)),
                size: header.size,
                offset: header.offset,
                has_data: !header.is(elf::SHT_NOBITS),
                writable: header.has_flag(elf::SHF_WRITE),
                executable: header.has_flag(elf::SHF_EXECINSTR),
            })
    }

    /// The section of that index ([`SectionInfo::index`]) with its bytes; `None` if there is no
    /// such section or the file holds no bytes for it. The first call for a section that is
    /// compressed or has relocations allocates.
    ///
    /// # Errors
    ///
    /// [`ModuleError`] if it runs past the end of the file or cannot be decompressed.
    pub fn section(&self, index: usize) -> Result<Option<Section<'_>>, ModuleError> {
        let Some(header) = self.section_header(index) else {
            return Ok(None);
        };
        if header.is(elf::SHT_NOBITS) {
            return Ok(None);
        }
        let (data, problems) = self.section_contents(index)?;
        Ok(Some(Section {
            name: self.section_name(index),
            address: Vaddr(header.addr),
            offset: header.offset,
            data,
            problems,
            source: SectionSource::SectionHeader,
        }))
    }

    /// The first section of that name that the file holds bytes for. `.debug_…` also finds the
    /// older compressed form `.zdebug_…`.
    ///
    /// # Errors
    ///
    /// As for [`ElfFile::section`]. If no section is found because the section headers cannot be
    /// read, the error of the headers.
    pub fn section_named(&self, name: &str) -> Result<Option<Section<'_>>, ModuleError> {
        match self.indices_named(name).next() {
            Some(index) => self.section(index),
            None => self.check_section_headers().map(|()| None),
        }
    }

    /// The lines of `.comment`: the compilers and assemblers that made the file. Empty if there is
    /// no such section, or it cannot be read.
    pub fn comments(&self) -> impl Iterator<Item = &[u8]> + Clone {
        let section = self.section_named(".comment").ok().flatten();
        let lines = section.map_or(&[][..], |section| section.data);
        let lines = lines.split(|byte| *byte == 0);
        lines.filter(|line| !line.is_empty())
    }

    /// The name and the start address of the section that contains `addr`, to print the address as
    /// `.text.foo+0x10`.
    #[must_use]
    pub fn section_of(&self, addr: Vaddr) -> Option<(Cow<'_, str>, Vaddr)> {
        let index = self.sections_by_address.find(addr.0)?;
        let start = self.section_header(index)?.addr;
        Some((self.section_name(index), Vaddr(start)))
    }

    /// The sections of that name that the file holds bytes for.
    pub(crate) fn indices_named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = usize> {
        let compressed = name.strip_prefix(".debug_");
        let compressed = compressed.map(|rest| format!(".zdebug_{rest}"));
        self.indices(move |file, header| {
            let is = |name| file.is_named(header, name);
            is(name) || compressed.as_deref().is_some_and(is)
        })
    }

    /// The sections with bytes that `wanted` accepts.
    pub(crate) fn indices(
        &self,
        wanted: impl Fn(&ElfFile, &Shdr) -> bool,
    ) -> impl Iterator<Item = usize> {
        self.section_headers()
            .iter()
            .enumerate()
            .filter(move |(_, header)| {
                !header.is(elf::SHT_NOBITS) && !header.is(elf::SHT_NULL) && wanted(self, header)
            })
            .map(|(index, _)| index)
    }
}
