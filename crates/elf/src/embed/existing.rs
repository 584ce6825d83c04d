//! Finding a section that was embedded before.

use object::elf;

use super::draft::LoadLocation;
use super::error::EmbedError;
use super::rest::has_bytes;
use crate::elf::{ElfFile, slice};
use crate::header::{Phdr, Shdr};

/// An embedded section, and its segment.
#[derive(Debug)]
pub(super) struct EmbeddedSection {
    /// The index of the program header.
    pub(super) program: usize,
    /// The index of the section header.
    pub(super) section: Option<usize>,
    /// Where both start.
    pub(super) location: LoadLocation,
    /// The size of the section in bytes.
    pub(super) content: u64,
    /// The size of the segment in bytes.
    pub(super) size: u64,
    /// The offset in the segment of the blocks displaced for its program header.
    pub(super) displaced: Option<u64>,
}

impl EmbeddedSection {
    /// Whether the file offset is in the segment.
    pub(super) fn holds(&self, offset: u64) -> bool {
        offset
            .checked_sub(self.location.offset)
            .is_some_and(|delta| delta < self.size)
    }
}

/// Finds it by its section header, or without one by its first bytes.
pub(super) fn find(
    file: &ElfFile,
    name: &str,
    magic: &[u8],
) -> Result<Option<EmbeddedSection>, EmbedError> {
    let named = |header: &Shdr| file.is_named(header, name);
    let Some(section) = file.section_headers().iter().position(named) else {
        return Ok(by_magic(file, magic));
    };
    by_section(file, section)
        .map(Some)
        .ok_or_else(|| EmbedError::NameTaken {
            file: file.path().to_path_buf(),
            section: name.to_owned(),
            offset: file.section_header(section).map_or(0, |s| s.offset),
        })
}

/// The readable segments with bytes, except the one with the headers: it begins with the magic
/// number of ELF files.
fn candidates(file: &ElfFile) -> impl Iterator<Item = (usize, &Phdr)> {
    file.program_headers().iter().enumerate().filter(|(_, p)| {
        p.kind == elf::PT_LOAD.0 && p.flags == elf::PF_R.0 && p.file_size > 0 && p.offset > 0
    })
}

fn by_section(file: &ElfFile, index: usize) -> Option<EmbeddedSection> {
    let header = file.section_header(index)?;
    let (program, segment) = candidates(file).find(|(_, p)| is_content(header, p))?;
    let guests = first_other_object(file, segment, Some(index));
    let end = guests.unwrap_or(segment.file_size);
    (header.size <= end).then_some(EmbeddedSection {
        program,
        section: Some(index),
        location: LoadLocation::from_segment(segment),
        content: header.size,
        size: segment.file_size,
        displaced: guests,
    })
}

/// Whether the section could have been embedded in that segment.
fn is_content(header: &Shdr, segment: &Phdr) -> bool {
    let plain = header.is(elf::SHT_PROGBITS) && header.flags == elf::SHF_ALLOC.0;
    plain && header.offset == segment.offset && header.addr == segment.vaddr
}

/// Only the last segment in memory, and only if no section starts there: the constants of a program
/// that looks for the magic bytes may begin with them.
fn by_magic(file: &ElfFile, magic: &[u8]) -> Option<EmbeddedSection> {
    let (program, segment) = candidates(file).max_by_key(|(_, p)| p.vaddr)?;
    let length = magic.len() as u64;
    let begins = length > 0
        && length <= segment.file_size
        && slice(file.bytes(), segment.offset, length) == Some(magic);
    let last = file.segments().all(|other| other.vaddr.0 <= segment.vaddr);
    let starts = |s: &Shdr| has_bytes(s) && s.offset == segment.offset;
    if !begins || !last || file.section_headers().iter().any(starts) {
        return None;
    }
    let guests = first_other_object(file, segment, None);
    Some(EmbeddedSection {
        program,
        section: None,
        location: LoadLocation::from_segment(segment),
        content: guests.unwrap_or(segment.file_size),
        size: segment.file_size,
        displaced: guests,
    })
}

/// The offset in the segment of any other object that a header or the dynamic section points at.
fn first_other_object(file: &ElfFile, segment: &Phdr, except: Option<usize>) -> Option<u64> {
    let sections = file.section_headers().iter().enumerate();
    let sections = sections
        .filter(|(index, s)| Some(*index) != except && s.is_allocated() && has_bytes(s))
        .map(|(_, s)| s.offset);
    let programs = file.program_headers().iter();
    let programs = programs
        .filter(|p| p.kind != elf::PT_LOAD.0 && p.file_size > 0)
        .map(|p| p.offset);
    let tables = TABLES.iter().filter_map(|(_, tag)| {
        let address = file.dynamic_value(*tag)?;
        address
            .checked_sub(segment.vaddr)?
            .checked_add(segment.offset)
    });
    sections
        .chain(programs)
        .chain(tables)
        .filter_map(|offset| offset.checked_sub(segment.offset))
        .filter(|delta| (1..segment.file_size).contains(delta))
        .min()
}

/// The tables that only the dynamic section locates: section type, dynamic tag.
pub(super) const TABLES: [(elf::SectionType, elf::DynamicTag); 3] = [
    (elf::SHT_HASH, elf::DT_HASH),
    (elf::SHT_GNU_HASH, elf::DT_GNU_HASH),
    (elf::SHT_DYNSYM, elf::DT_SYMTAB),
];
