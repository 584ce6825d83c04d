//! Sections that no process maps.

use object::elf;

use super::draft::{Draft, with_name};
use super::error::EmbedError;
use super::rest;
use super::{check_file, check_name};
use crate::elf::ElfFile;
use crate::header::Shdr;

/// A copy of the ELF file in which `content` is a section of that name, at the end and not mapped.
/// It replaces an unmapped section of that name. All addresses and offsets stay. The bytes of the
/// replaced section stay in the file, unless they are the last.
///
/// # Errors
///
/// [`EmbedError`] if the file is not linked, is damaged, has no section headers, or has bytes
/// behind its last section. Also if the name cannot be used.
pub fn embed_unmapped(file: &ElfFile, name: &str, content: &[u8]) -> Result<Vec<u8>, EmbedError> {
    check_name(name)?;
    check_file(file)?;
    rest::end(file, None)?;
    let mut draft = Draft::new(file);
    let Some(names) = draft.names()? else {
        return Err(EmbedError::NotLinked {
            file: file.path().to_path_buf(),
            what: "without section headers, by which its types would be found",
        });
    };
    let (names, at) = with_name(names, name);
    let is_old = |section: &Shdr| file.is_named(section, name) && !section.has_flag(elf::SHF_ALLOC);
    let old = draft.sections.iter().position(is_old);
    if let Some(section) = old.and_then(|index| draft.sections.get_mut(index)) {
        section.size = 0; // so that its bytes are cut off, if they are the last
    }
    let mut out = file.bytes().to_vec();
    let end = draft.end_of_content();
    out.truncate(usize::try_from(end).unwrap_or(usize::MAX));
    let section = Shdr {
        name: u32::try_from(at).unwrap_or(0),
        kind: elf::SHT_PROGBITS.0,
        flags: 0,
        addr: 0,
        offset: out.len() as u64,
        size: content.len() as u64,
        link: 0,
        info: 0,
        align: 1,
        entry_size: 0,
    };
    out.extend(content);
    match old.and_then(|index| draft.sections.get_mut(index)) {
        Some(old) => *old = section,
        None => draft.sections.push(section),
    }
    draft.write_section_table(&mut out, names)?;
    Ok(out)
}

impl Draft<'_> {
    /// The end of the headers, segments and sections, except the section names.
    fn end_of_content(&self) -> u64 {
        let names = usize::try_from(self.file.headers.section_names).ok();
        let sections = self.sections.iter().enumerate();
        let sections = sections
            .filter(|(index, section)| Some(*index) != names && rest::has_bytes(section))
            .map(|(_, section)| section.offset.saturating_add(section.size));
        let segments = self.file.program_headers().iter();
        let segments = segments.map(|segment| segment.offset.saturating_add(segment.file_size));
        let headers = self.program_table().end.max(self.encoding.header_size());
        sections
            .chain(segments)
            .chain([headers])
            .max()
            .unwrap_or(headers)
    }
}
