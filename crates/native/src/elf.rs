//! An ELF file with a few sections, written in one go (System V gABI, chapters 4 and 5).

use core::ops::Range;

pub(crate) const SHT_PROGBITS: u32 = 1;
pub(crate) const SHT_STRTAB: u32 = 3;
pub(crate) const SHT_HASH: u32 = 5;
pub(crate) const SHT_DYNAMIC: u32 = 6;
pub(crate) const SHT_NOTE: u32 = 7;
pub(crate) const SHT_DYNSYM: u32 = 11;
pub(crate) const NT_GNU_BUILD_ID: u32 = 3;
pub(crate) const DT_HASH: u64 = 4;
pub(crate) const DT_STRTAB: u64 = 5;
pub(crate) const DT_SYMTAB: u64 = 6;
pub(crate) const DT_STRSZ: u64 = 10;
pub(crate) const DT_SYMENT: u64 = 11;

const ET_DYN: u16 = 3;
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_NOTE: u32 = 4;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
const PT_GNU_STACK: u32 = 0x6474_e551;
const READ: u32 = 4;
const WRITE: u32 = 2;
const EXECUTE: u32 = 1;
const SHF_WRITE: u64 = 1;
const SHF_ALLOC: u64 = 2;
const SHF_EXECINSTR: u64 = 4;

const EHDR: usize = 64;
const PHDR: usize = 56;
const SHDR: usize = 64;
const PHDRS: usize = 7;
/// Bytes that the name of a section takes, at most; this is for how much memory is asked for at once.
const LONGEST_NAME: usize = 24;
const PAGE: u64 = 0x1000;

/// How a section is mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Segment {
    Read,
    Code,
    Write,
}

impl Segment {
    const ALL: [Segment; 3] = [Segment::Read, Segment::Code, Segment::Write];

    fn permissions(self) -> u32 {
        match self {
            Segment::Read => READ,
            Segment::Code => READ | EXECUTE,
            Segment::Write => READ | WRITE,
        }
    }

    fn section_flags(self) -> u64 {
        match self {
            Segment::Read => SHF_ALLOC,
            Segment::Code => SHF_ALLOC | SHF_EXECINSTR,
            Segment::Write => SHF_ALLOC | SHF_WRITE,
        }
    }

    /// How far its addresses are above its places in the file: each segment has pages of its own.
    fn shift(self) -> u64 {
        match self {
            Segment::Read => 0,
            Segment::Code => PAGE,
            Segment::Write => 2 * PAGE,
        }
    }
}

/// A section that is loaded. Those of a segment stand together, and segments in their order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Section {
    pub(crate) name: &'static str,
    pub(crate) kind: u32,
    pub(crate) align: usize,
    pub(crate) size: usize,
    pub(crate) segment: Segment,
    /// The number of the section that it refers to.
    pub(crate) link: usize,
    pub(crate) entry_size: u64,
}

/// Where a section is in the file and in memory.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Part {
    pub(crate) offset: usize,
    pub(crate) address: u64,
    pub(crate) size: usize,
}

impl Part {
    fn end(&self) -> usize {
        self.offset + self.size
    }

    /// Where it is in the file.
    pub(crate) fn range(&self) -> Range<usize> {
        self.offset..self.end()
    }
}

/// Where the sections of a file are, but the first, which is none, and the last, which has their names. `None` if it
/// is no such file.
pub(crate) fn parts(file: &[u8]) -> Option<Vec<Part>> {
    let word = |at: usize| {
        let bytes = file.get(at..)?.first_chunk()?;
        Some(u64::from_le_bytes(*bytes))
    };
    let headers = usize::try_from(word(40)?).ok()?;
    let headers = file.get(headers..)?.chunks_exact(SHDR);
    let sections = headers.len().checked_sub(1)?;
    let mut parts = Vec::new();
    for header in headers.take(sections).skip(1) {
        let word = |at: usize| {
            header
                .get(at..)?
                .first_chunk()
                .map(|word| u64::from_le_bytes(*word))
        };
        let number = |at| usize::try_from(word(at)?).ok();
        let part = Part {
            offset: number(24)?,
            address: word(16)?,
            size: number(32)?,
        };
        let end = part.offset.checked_add(part.size)?;
        parts.push(part);
        if end > file.len() {
            return None;
        }
    }
    Some(parts)
}

/// What the program headers speak of.
#[derive(Debug)]
pub(crate) struct Roles {
    pub(crate) machine: u16,
    /// Notes one behind the other.
    pub(crate) notes: [Part; 2],
    pub(crate) dynamic: Part,
    pub(crate) eh_frame_hdr: Part,
}

/// Gives each section a place.
pub(crate) fn place(sections: &[Section]) -> Vec<Part> {
    let mut offset = EHDR + PHDRS * PHDR;
    let mut place = |section: &Section| {
        offset = offset.next_multiple_of(section.align);
        let part = Part {
            offset,
            address: offset as u64 + section.segment.shift(),
            size: section.size,
        };
        offset += section.size;
        part
    };
    sections.iter().map(&mut place).collect()
}

/// Writes the file: sections at their places with their contents, and the headers. The contents are given up one by
/// one.
pub(crate) fn write(
    sections: &[Section],
    parts: &[Part],
    contents: impl IntoIterator<Item = Vec<u8>>,
    roles: &Roles,
) -> Vec<u8> {
    let end = parts.last().map_or(0, Part::end);
    let headers = (sections.len() + 2) * (SHDR + LONGEST_NAME);
    let mut file = Vec::with_capacity(end + headers);
    file.resize(EHDR + PHDRS * PHDR, 0);
    for (part, content) in parts.iter().zip(contents) {
        file.resize(part.offset, 0);
        file.extend(content);
    }
    let mut names = vec![0_u8];
    let mut name = |text: &str| {
        let at = names.len();
        names.extend(text.bytes().chain([0]));
        u32::try_from(at).unwrap_or(0)
    };
    let section_names: Vec<u32> = sections.iter().map(|section| name(section.name)).collect();
    let last_name = name(".shstrtab");
    let strings = Part {
        offset: file.len(),
        address: 0,
        size: names.len(),
    };
    file.extend(names);
    file.resize(file.len().next_multiple_of(8), 0);
    let section_headers = file.len();
    file.extend([0; SHDR]);
    for ((section, part), name) in sections.iter().zip(parts).zip(section_names) {
        put_section(
            &mut file,
            section,
            *part,
            name,
            section.segment.section_flags(),
        );
    }
    let shstrtab = Section {
        name: ".shstrtab",
        kind: SHT_STRTAB,
        align: 1,
        size: strings.size,
        segment: Segment::Read,
        link: 0,
        entry_size: 0,
    };
    put_section(&mut file, &shstrtab, strings, last_name, 0);
    let mut headers = file_header(roles.machine, section_headers, sections.len() + 2);
    for segment in Segment::ALL {
        let own = sections.iter().zip(parts);
        let own = own.filter(|(section, _)| section.segment == segment);
        let span = span(own.map(|(_, part)| *part));
        let span = match segment {
            // The headers are read, too.
            Segment::Read => Part {
                offset: 0,
                address: 0,
                size: span.end(),
            },
            _ => span,
        };
        put_segment(&mut headers, PT_LOAD, segment.permissions(), span, PAGE);
    }
    put_segment(&mut headers, PT_DYNAMIC, READ | WRITE, roles.dynamic, 8);
    put_segment(
        &mut headers,
        PT_NOTE,
        READ,
        span(roles.notes.into_iter()),
        4,
    );
    put_segment(&mut headers, PT_GNU_EH_FRAME, READ, roles.eh_frame_hdr, 4);
    put_segment(
        &mut headers,
        PT_GNU_STACK,
        READ | WRITE,
        Part::default(),
        16,
    );
    for (slot, byte) in file.iter_mut().zip(headers) {
        *slot = byte;
    }
    file
}

/// From the begin of the first to the end of the last.
fn span(parts: impl Iterator<Item = Part>) -> Part {
    let parts = parts.reduce(|first, last| Part {
        size: last.end() - first.offset,
        ..first
    });
    parts.unwrap_or_default()
}

fn file_header(machine: u16, section_headers: usize, sections: usize) -> Vec<u8> {
    let mut header = Vec::from(*b"\x7fELF\x02\x01\x01");
    header.resize(16, 0);
    let half = |number: usize| u16::try_from(number).unwrap_or(0).to_le_bytes();
    header.extend(ET_DYN.to_le_bytes());
    header.extend(machine.to_le_bytes());
    header.extend(1_u32.to_le_bytes());
    header.extend(0_u64.to_le_bytes());
    header.extend((EHDR as u64).to_le_bytes());
    header.extend((section_headers as u64).to_le_bytes());
    header.extend(0_u32.to_le_bytes());
    for number in [EHDR, PHDR, PHDRS, SHDR, sections, sections - 1] {
        header.extend(half(number));
    }
    header
}

fn put_segment(out: &mut Vec<u8>, kind: u32, permissions: u32, part: Part, align: u64) {
    out.extend(kind.to_le_bytes());
    out.extend(permissions.to_le_bytes());
    let (offset, size) = (part.offset as u64, part.size as u64);
    for word in [offset, part.address, part.address, size, size, align] {
        out.extend(word.to_le_bytes());
    }
}

fn put_section(out: &mut Vec<u8>, section: &Section, part: Part, name: u32, flags: u64) {
    out.extend(name.to_le_bytes());
    out.extend(section.kind.to_le_bytes());
    for word in [flags, part.address, part.offset as u64, part.size as u64] {
        out.extend(word.to_le_bytes());
    }
    out.extend(u32::try_from(section.link).unwrap_or(0).to_le_bytes());
    // Of a table of symbols: the first that is not local.
    out.extend(u32::from(section.kind == SHT_DYNSYM).to_le_bytes());
    for word in [section.align as u64, section.entry_size] {
        out.extend(word.to_le_bytes());
    }
}
