//! An archive: dictionaries by name. A dictionary alone is an archive with one member.
//!
//! All numbers have 64 bits, little-endian: a magic number, the data model, the number of
//! dictionaries, and the offsets of names and dictionaries. Then for each member, sorted by name:
//! the offsets of its name and of its dictionary. They are relative to the two former offsets (as
//! in GNU's tools; in the specification's text they are relative to the start). Each dictionary is
//! preceded by its size, and GNU ld includes the eight bytes of the size itself.

use std::borrow::Cow;

use crate::bytes::{little_u64, size, wide};
use crate::dict::Dict;
use crate::elf::ElfStrings;
use crate::error::CtfError;

/// The magic number of an archive.
pub const ARCHIVE_MAGIC: u64 = 0x8b47_f2a4_d762_3eeb;
/// The name of the dictionary that is the parent of the others, and of a single dictionary.
pub const SHARED: &str = ".ctf";

const HEADER: usize = 40;
const ENTRY: usize = 16;
/// The width of a member's size, in bytes.
const SIZE: u64 = 8;

/// A dictionary of an archive, not yet read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CtfArchiveMember<'a> {
    /// Its name: [`SHARED`] for the shared one, a source file's for the others.
    pub name: Cow<'a, str>,
    /// Its offset in the section.
    pub offset: u64,
    /// Its bytes.
    pub bytes: &'a [u8],
}

impl<'a> CtfArchiveMember<'a> {
    /// Reads the dictionary.
    ///
    /// # Errors
    ///
    /// As [`Dict::parse`].
    pub fn dict(&self, strings: ElfStrings<'a>) -> Result<Dict<'a>, CtfError> {
        Dict::parse(self.bytes, self.offset, strings)
    }
}

/// The members of a section's CTF, in their order: those of an archive, or the one dictionary.
///
/// # Errors
///
/// The bytes are neither an archive nor a dictionary, or its tables run past its end. A fault in a
/// single member is an error in its place.
pub fn members(bytes: &[u8]) -> Result<Vec<Result<CtfArchiveMember<'_>, CtfError>>, CtfError> {
    if little_u64(bytes, 0) != Some(ARCHIVE_MAGIC) {
        return Ok(vec![Ok(CtfArchiveMember {
            name: SHARED.into(),
            offset: 0,
            bytes,
        })]);
    }
    let truncated = |what, offset: usize, needed: u64| CtfError::Truncated {
        what,
        offset: wide(offset),
        needed,
        end: wide(bytes.len()),
    };
    let field = |at| little_u64(bytes, at).ok_or_else(|| truncated("archive header", 0, 40));
    let (count, names, dicts) = (field(16)?, field(24)?, field(32)?);
    let table = count.saturating_mul(wide(ENTRY));
    let entries = bytes.get(HEADER..HEADER.saturating_add(size(table)));
    let entries = entries.ok_or_else(|| truncated("table of an archive", HEADER, table))?;
    let mut members: Vec<_> = entries
        .chunks_exact(ENTRY)
        .map(|entry| member(bytes, names, dicts, entry))
        .collect();
    refuse_overlaps(&mut members, wide(HEADER).saturating_add(table));
    Ok(members)
}

fn member<'a>(
    bytes: &'a [u8],
    names: u64,
    dicts: u64,
    entry: &[u8],
) -> Result<CtfArchiveMember<'a>, CtfError> {
    let end = wide(bytes.len());
    let truncated = |what, offset, needed| CtfError::Truncated {
        what,
        offset,
        needed,
        end,
    };
    let name_at = names.saturating_add(little_u64(entry, 0).unwrap_or(0));
    let name = bytes.get(size(name_at)..).unwrap_or_default();
    let name_end = name.iter().position(|byte| *byte == 0);
    let name = name_end.and_then(|end| name.get(..end));
    let name = name.ok_or_else(|| truncated("name of an archive member", name_at, 1))?;
    let at = dicts.saturating_add(little_u64(entry, 8).unwrap_or(0));
    let length = little_u64(bytes, size(at));
    let length = length.ok_or_else(|| truncated("archive member", at, SIZE))?;
    let offset = at.saturating_add(SIZE);
    // The end of the bytes that are certainly the member's; further bytes are so only if the size
    // does not count itself.
    let certain = at.saturating_add(length).max(offset);
    if certain > end {
        return Err(truncated("archive member", offset, length));
    }
    let end = offset.saturating_add(length).min(end);
    Ok(CtfArchiveMember {
        name: String::from_utf8_lossy(name),
        offset,
        bytes: bytes.get(size(offset)..size(end)).unwrap_or_default(),
    })
}

/// Makes errors of members that overlap the table or each other. Otherwise their content would be
/// read twice, and a few bytes could hold very many members.
fn refuse_overlaps(members: &mut [Result<CtfArchiveMember<'_>, CtfError>], table_end: u64) {
    let range = |index: usize, member: &Result<CtfArchiveMember<'_>, CtfError>| {
        let member = member.as_ref().ok()?;
        let start = member.offset.saturating_sub(SIZE);
        Some((start, start.saturating_add(wide(member.bytes.len())), index))
    };
    let mut ranges: Vec<_> = members
        .iter()
        .enumerate()
        .filter_map(|(index, member)| range(index, member))
        .collect();
    ranges.sort_unstable();
    let mut before = (0, table_end);
    for (start, end, index) in ranges {
        if start < before.1 {
            if let Some(member) = members.get_mut(index) {
                *member = Err(CtfError::Overlap {
                    index: wide(index),
                    offset: start,
                    other: before.0,
                });
            }
        } else {
            before = (start, end);
        }
    }
}

/// An archive of dictionaries.
pub(crate) fn archive(mut dicts: Vec<(&str, Vec<u8>)>, pointer_size: u64) -> Vec<u8> {
    dicts.sort_by_key(|(name, _)| *name);
    let count = dicts.len();
    let start = 40 + count * 16;
    let (mut names, mut bodies, mut entries) = (Vec::new(), Vec::new(), Vec::new());
    for (name, dict) in &dicts {
        entries.extend([wide(names.len()), wide(bodies.len())]);
        names.extend_from_slice(name.as_bytes());
        names.push(0);
        bodies.extend(wide(dict.len()).to_le_bytes());
        bodies.extend_from_slice(dict);
        bodies.resize(bodies.len().next_multiple_of(8), 0);
    }
    // 1 is for pointers of 4 bytes, 2 for 8.
    let model = if pointer_size == 4 { 1 } else { 2 };
    let names_at = wide(start + bodies.len());
    let header = [ARCHIVE_MAGIC, model, wide(count), names_at, wide(start)];
    let numbers = header.into_iter().chain(entries);
    let mut bytes: Vec<u8> = numbers.flat_map(u64::to_le_bytes).collect();
    bytes.extend(bodies);
    bytes.extend(names);
    bytes
}
