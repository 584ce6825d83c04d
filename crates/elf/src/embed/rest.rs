//! The end of the part of the file that stays.

use std::ops::Range;

use super::encode::Encoding;
use super::error::EmbedError;
use super::existing::EmbeddedSection;
use crate::elf::{ElfFile, load, slice};
use crate::header::Shdr;
use object::elf;

/// The file offset behind the last byte that is needed, apart from the section headers, the section
/// names and the segment `old`. If there are section headers, bytes that nothing describes are an
/// error. Otherwise all bytes are needed.
pub(super) fn end(file: &ElfFile, old: Option<&EmbeddedSection>) -> Result<u64, EmbedError> {
    let needed = content_end(file, old)?;
    let length = file.bytes().len() as u64;
    if file.section_headers().is_empty() {
        return Ok(match old {
            Some(old) if old.location.offset >= needed => old.location.offset,
            _ => length,
        });
    }
    match first_unknown(file, old, needed) {
        None => Ok(needed),
        Some(offset) => Err(EmbedError::Trailing {
            file: file.path().to_path_buf(),
            offset,
            length: length - offset,
        }),
    }
}

fn content_end(file: &ElfFile, old: Option<&EmbeddedSection>) -> Result<u64, EmbedError> {
    let encoding = Encoding::from_file(file);
    let counted = |count: usize, size: u64| (count as u64).saturating_mul(size);
    let programs = file.program_headers();
    let table = counted(programs.len(), encoding.program_size());
    let mut parts = vec![
        ("the ELF header", 0, encoding.header_size()),
        (
            "the program header table",
            file.headers.program_header_offset,
            table,
        ),
    ];
    let segment = |p: &crate::header::Phdr| ("a segment", p.offset, p.file_size);
    parts.extend(programs.iter().map(segment));
    let sections = file.section_headers().iter().enumerate();
    parts.extend(
        sections
            .filter(|(index, s)| has_bytes(s) && !is_names(file, *index))
            .map(|(_, s)| ("a section", s.offset, s.size)),
    );
    let mut end = 0;
    for (what, offset, size) in parts {
        if slice(file.bytes(), offset, size).is_none() {
            return Err(file.truncated(what.to_owned(), offset, size).into());
        }
        let in_old = size == 0 || old.is_some_and(|old| old.holds(offset));
        if !in_old {
            end = end.max(offset + size);
        }
    }
    Ok(end)
}

/// Whether the file has bytes for the section.
pub(super) fn has_bytes(header: &Shdr) -> bool {
    !header.is(elf::SHT_NOBITS) && !header.is(elf::SHT_NULL) && header.size > 0
}

/// Whether that is the section of the section names.
fn is_names(file: &ElfFile, index: usize) -> bool {
    u32::try_from(index) == Ok(file.headers.section_names)
}

/// The section header table in the file.
pub(super) fn section_table(file: &ElfFile) -> Range<u64> {
    let encoding = Encoding::from_file(file);
    let field = encoding.header_fields().section_offset;
    let bytes = slice(file.bytes(), field, encoding.word_size() as u64);
    let start = load(bytes.unwrap_or_default(), file.is_little_endian());
    let count = file.section_headers().len() as u64;
    start..start.saturating_add(count.saturating_mul(encoding.section_size()))
}

/// The first byte behind `from` that is not zero and that nothing describes.
fn first_unknown(file: &ElfFile, old: Option<&EmbeddedSection>, from: u64) -> Option<u64> {
    let names = usize::try_from(file.headers.section_names).ok();
    let names = names.and_then(|index| file.section_header(index));
    let mut known = vec![section_table(file)];
    known.extend(names.map(|s| s.offset..s.offset.saturating_add(s.size)));
    known.extend(old.map(|old| old.location.offset..old.location.offset + old.size));
    known.sort_by_key(|range| range.start);
    let mut at = from;
    for range in known {
        let gap = at..range.start.max(at);
        if let Some(found) = first_byte_not_in(&[0], file.bytes(), gap) {
            return Some(found);
        }
        at = at.max(range.end);
    }
    first_byte_not_in(&[0], file.bytes(), at..(file.bytes().len() as u64).max(at))
}

/// The first byte of the range that is not in `blank`.
pub(super) fn first_byte_not_in(blank: &[u8], bytes: &[u8], range: Range<u64>) -> Option<u64> {
    let end = range.end.min(bytes.len() as u64);
    let data = slice(bytes, range.start, end.checked_sub(range.start)?)?;
    let delta = data.iter().position(|byte| !blank.contains(byte))?;
    Some(range.start + delta as u64)
}
