//! A module's unwind tables, found as the run-time unwinder finds them.

use std::borrow::Cow;

use gimli::{BaseAddresses, EhFrameHdr, EndianSlice, Pointer, RunTimeEndian};
use object::elf;
use unspool_rows::{Arch, Vaddr};

use crate::arch;
use crate::elf::{ElfFile, slice};
use crate::error::ModuleError;
use crate::header::{Phdr, Shdr};
use crate::section::{Section, SectionSource};

impl ElfFile {
    /// The call frame information that the run-time unwinder uses.
    ///
    /// In a linked file, `.eh_frame_hdr` (`PT_GNU_EH_FRAME`) points to it: the section that
    /// contains that address, or without section headers all bytes from there to the end of the
    /// segment. Names come second because tools that rewrite binaries keep stale copies under other
    /// names, or even move the original aside (`.bolt.org.eh_frame`).
    ///
    /// If that header is missing or points nowhere, it is every section called `.eh_frame`. A
    /// relocatable file may have several, for example one in each section group. A separate debug
    /// file has none.
    ///
    /// # Errors
    ///
    /// [`ModuleError`] if the section runs past the end of the file or cannot be decompressed. Also
    /// if no section is found because the header tables cannot be read.
    pub fn eh_frames(&self) -> Result<Vec<Section<'_>>, ModuleError> {
        if let Some(section) = self.eh_frame_by_header()? {
            return Ok(vec![section]);
        }
        let arch = self.abi().arch;
        self.all(move |file, header| is_eh_frame(file, header, arch))
    }

    /// The binary search table for `.eh_frame`, from `PT_GNU_EH_FRAME` or by its section's name.
    /// Pointers in it that are relative to data are relative to its own first byte.
    ///
    /// # Errors
    ///
    /// As for [`ElfFile::eh_frames`].
    pub fn eh_frame_hdr(&self) -> Result<Option<Section<'_>>, ModuleError> {
        match self.segment_of_kind(elf::PT_GNU_EH_FRAME) {
            Some(header) => self.section_of_segment(header),
            None => self.section_named(".eh_frame_hdr"),
        }
    }

    /// The sections called `.debug_frame`, decompressed. A relocatable file may have several. A
    /// stripped file has none: use its separate debug file.
    ///
    /// # Errors
    ///
    /// As for [`ElfFile::section_named`].
    pub fn debug_frames(&self) -> Result<Vec<Section<'_>>, ModuleError> {
        let indices: Vec<usize> = self.indices_named(".debug_frame").collect();
        self.sections_at(&indices)
    }

    /// The SFrame sections: from `PT_GNU_SFRAME`, else by section type or name.
    ///
    /// # Errors
    ///
    /// As for [`ElfFile::eh_frames`].
    pub fn sframes(&self) -> Result<Vec<Section<'_>>, ModuleError> {
        if let Some(header) = self.segment_of_kind(elf::PT_GNU_SFRAME) {
            return Ok(self.section_of_segment(header)?.into_iter().collect());
        }
        self.all(|file, header| header.is(elf::SHT_GNU_SFRAME) || file.is_named(header, ".sframe"))
    }

    /// The sections of ORC, the kernel's unwind table: `.orc_unwind_ip`, `.orc_unwind`, and the hash
    /// in `.orc_header`, which is empty if there is none.
    ///
    /// # Errors
    ///
    /// As for [`ElfFile::section_named`].
    pub fn orc(&self) -> Result<Option<[Section<'_>; 3]>, ModuleError> {
        let addresses = self.section_named(".orc_unwind_ip")?;
        let Some((addresses, entries)) = addresses.zip(self.section_named(".orc_unwind")?) else {
            return Ok(None);
        };
        let empty = Section {
            data: &[],
            ..entries.clone()
        };
        let hash = self.section_named(".orc_header")?.unwrap_or(empty);
        Ok(Some([addresses, entries, hash]))
    }

    /// The release of the kernel that the file is, or is a module for: its first two numbers.
    #[must_use]
    pub fn kernel_release(&self) -> Option<(u32, u32)> {
        let after = |section: &str, mark: &[u8]| {
            let section = self.section_named(section).ok()??;
            let mut windows = section.data.windows(mark.len());
            let at = windows.position(|window| window == mark)?;
            section.data.get(at + mark.len()..)
        };
        let text =
            after(".modinfo", b"vermagic=").or_else(|| after(".rodata", b"Linux version "))?;
        let mut numbers = text.split(|byte| !byte.is_ascii_digit());
        let mut number = || str::from_utf8(numbers.next()?).ok()?.parse().ok();
        Some((number()?, number()?))
    }

    /// Whether the file has the exception index tables of 32-bit ARM (EHABI32, `.ARM.exidx`). Most
    /// of ARM's files have these and no `.eh_frame`.
    #[must_use]
    pub fn has_arm_exception_index(&self) -> bool {
        let has_segment = || self.segment_of_kind(elf::PT_ARM_EXIDX).is_some();
        let mut sections = self.section_headers().iter();
        self.abi().arch == Arch::Arm
            && (has_segment() || sections.any(|header| header.is(elf::SHT_ARM_EXIDX)))
    }

    /// The base of text-relative pointers (`DW_EH_PE_textrel`): the address of `.text`.
    #[must_use]
    pub fn text_base(&self) -> Option<Vaddr> {
        self.address_of_section(".text")
    }

    /// The base of data-relative pointers (`DW_EH_PE_datarel`) in `.eh_frame`: the global offset
    /// table. It is found by `DT_PLTGOT` as in the dynamic loader, else by the address of `.got`.
    /// In `.eh_frame_hdr` such pointers are relative to that section itself.
    #[must_use]
    pub fn data_base(&self) -> Option<Vaddr> {
        self.dynamic_value(elf::DT_PLTGOT)
            .map(Vaddr)
            .or_else(|| self.address_of_section(".got"))
    }

    fn address_of_section(&self, name: &str) -> Option<Vaddr> {
        self.section_headers()
            .iter()
            .find(|header| header.is_allocated() && self.is_named(header, name))
            .map(|header| Vaddr(header.addr))
    }

    fn all(
        &self,
        wanted: impl Fn(&ElfFile, &Shdr) -> bool,
    ) -> Result<Vec<Section<'_>>, ModuleError> {
        let indices: Vec<usize> = self.indices(wanted).collect();
        self.sections_at(&indices)
    }

    fn sections_at(&self, indices: &[usize]) -> Result<Vec<Section<'_>>, ModuleError> {
        if indices.is_empty() {
            self.check_section_headers()?;
            self.check_program_headers()?;
        }
        indices
            .iter()
            .filter_map(|index| self.section(*index).transpose())
            .collect()
    }

    fn eh_frame_by_header(&self) -> Result<Option<Section<'_>>, ModuleError> {
        let Some(header) = self.segment_of_kind(elf::PT_GNU_EH_FRAME) else {
            return Ok(None);
        };
        let Some(table) = self.section_of_segment(header)? else {
            return Ok(None);
        };
        match self.eh_frame_pointer(&table) {
            Some(target) => self.section_from(target),
            None => Ok(None),
        }
    }

    /// The `eh_frame_ptr` field of `.eh_frame_hdr` (LSB Core §10.6.2); `None` if it cannot be
    /// decoded.
    fn eh_frame_pointer(&self, table: &Section<'_>) -> Option<Vaddr> {
        let mut bases = BaseAddresses::default().set_eh_frame_hdr(table.address.0);
        if let Some(text) = self.text_base() {
            bases = bases.set_text(text.0);
        }
        let endian = self.gimli_endian();
        let header = EhFrameHdr::new(table.data, endian)
            .parse(&bases, self.word().bytes())
            .ok()?;
        match header.eh_frame_ptr() {
            Pointer::Direct(address) => Some(Vaddr(address)),
            Pointer::Indirect(address) => self.pointer_at(Vaddr(address)),
        }
    }

    fn pointer_at(&self, at: Vaddr) -> Option<Vaddr> {
        let size = self.word().bytes();
        let bytes = self.bytes_at(at, u64::from(size))?;
        let mut reader = EndianSlice::new(bytes, self.gimli_endian());
        gimli::Reader::read_address(&mut reader, size)
            .ok()
            .map(Vaddr)
    }

    pub(crate) fn gimli_endian(&self) -> RunTimeEndian {
        if self.is_little_endian() {
            RunTimeEndian::Little
        } else {
            RunTimeEndian::Big
        }
    }

    /// The frame information at `target`. If it starts in the middle of a section with another
    /// name, a linker script merged it into that section. Then the bytes before it are not part of
    /// it.
    fn section_from(&self, target: Vaddr) -> Result<Option<Section<'_>>, ModuleError> {
        let Some(index) = self.sections_by_address.find(target.0) else {
            return Ok(self.rest_of_segment(target));
        };
        let Some(mut section) = self.section(index)? else {
            return Ok(None);
        };
        section.source = SectionSource::ProgramHeader;
        if section.name != ".eh_frame" {
            let skipped = target.0.saturating_sub(section.address.0);
            let rest = usize::try_from(skipped)
                .ok()
                .and_then(|at| section.data.get(at..));
            section.data = rest.unwrap_or_default();
            section.offset = section.offset.saturating_add(skipped);
            section.address = target;
        }
        Ok(Some(section))
    }

    /// The bytes of a program header that describes one section.
    pub(crate) fn section_of_segment(
        &self,
        header: &Phdr,
    ) -> Result<Option<Section<'_>>, ModuleError> {
        let start = Vaddr(header.vaddr);
        let covering = self.sections_by_address.find(start.0);
        let without_data = |index| {
            self.section_header(index)
                .is_some_and(|s| s.is(elf::SHT_NOBITS))
        };
        if covering.is_some_and(without_data) || header.file_size == 0 {
            return Ok(None);
        }
        let Some(data) = slice(self.bytes(), header.offset, header.file_size) else {
            let what = match elf::ProgramType(header.kind).name() {
                Some(name) => format!("the segment {name}"),
                None => format!("the segment of type {:#x}", header.kind),
            };
            return Err(self.truncated(what, header.offset, header.file_size));
        };
        Ok(Some(Section {
            name: covering.map_or(Cow::Borrowed(""), |index| self.section_name(index)),
            address: start,
            offset: header.offset,
            data,
            problems: &[],
            source: SectionSource::ProgramHeader,
        }))
    }

    fn rest_of_segment(&self, start: Vaddr) -> Option<Section<'_>> {
        Some(Section {
            name: Cow::Borrowed(""),
            address: start,
            offset: self.offset_of_vaddr(start)?,
            data: self.rest_at(start)?,
            problems: &[],
            source: SectionSource::ProgramHeader,
        })
    }
}

fn is_eh_frame(file: &ElfFile, header: &Shdr, arch: Arch) -> bool {
    let own_type = arch::format(arch).eh_frame_type;
    let typed = own_type.is_some_and(|own| header.is(own)) && header.is_allocated();
    let name = || file.section_name_bytes(header);
    file.is_named(header, ".eh_frame") || (typed && name().starts_with(b".eh_frame."))
}
