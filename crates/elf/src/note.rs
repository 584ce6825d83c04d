//! ELF notes, read for the build ID.

use object::elf;

use crate::build_id::BuildId;
use crate::elf::{ElfFile, slice};

/// `NT_GNU_BUILD_ID`.
const GNU_BUILD_ID: u32 = 3;

pub(crate) fn build_id(file: &ElfFile) -> Option<BuildId> {
    let in_section = file
        .section_headers()
        .iter()
        .filter(|s| s.is(elf::SHT_NOTE))
        .find_map(|s| find(file, s.offset, s.size, s.align));
    in_section.or_else(|| {
        file.program_headers()
            .iter()
            .filter(|p| p.kind == elf::PT_NOTE.0)
            .find_map(|p| find(file, p.offset, p.file_size, p.align))
    })
}

fn find(file: &ElfFile, offset: u64, size: u64, align: u64) -> Option<BuildId> {
    let mut notes = ElfNotes {
        data: slice(file.bytes(), offset, size)?,
        align: if align == 8 { 8 } else { 4 },
        little_endian: file.is_little_endian(),
    };
    notes
        .find(|note| note.kind == GNU_BUILD_ID && note.name == b"GNU\0")
        .and_then(|note| BuildId::new(note.description))
}

struct ElfNote<'a> {
    kind: u32,
    name: &'a [u8],
    description: &'a [u8],
}

/// The notes of one section or segment, up to the first that is cut short.
struct ElfNotes<'a> {
    data: &'a [u8],
    align: usize,
    little_endian: bool,
}

impl<'a> ElfNotes<'a> {
    fn word(&self, at: usize) -> Option<u32> {
        let bytes = self.data.get(at..)?.first_chunk()?;
        Some(if self.little_endian {
            u32::from_le_bytes(*bytes)
        } else {
            u32::from_be_bytes(*bytes)
        })
    }

    fn field(&self, at: usize, size: usize) -> Option<(&'a [u8], usize)> {
        let end = at.checked_add(size)?;
        Some((
            self.data.get(at..end)?,
            end.checked_next_multiple_of(self.align)?,
        ))
    }
}

impl<'a> Iterator for ElfNotes<'a> {
    type Item = ElfNote<'a>;

    fn next(&mut self) -> Option<ElfNote<'a>> {
        let name_size = usize::try_from(self.word(0)?).ok()?;
        let size = usize::try_from(self.word(4)?).ok()?;
        let kind = self.word(8)?;
        let (name, at) = self.field(12, name_size)?;
        let (description, next) = self.field(at, size)?;
        self.data = self.data.get(next..).unwrap_or_default();
        Some(ElfNote {
            kind,
            name,
            description,
        })
    }
}
