//! Writes an ELF file with a few sections, from begin to end (System V gABI, chapters 4 and 5).
//! Allocates nothing.

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
/// The section with all names.
const LAST_NAME: &str = ".shstrtab";
const PAGE_BYTES: u64 = 0x1000;

/// How a section is mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SegmentKind {
    Read,
    Code,
    Write,
}

impl SegmentKind {
    const ALL: [SegmentKind; 3] = [SegmentKind::Read, SegmentKind::Code, SegmentKind::Write];

    fn permissions(self) -> u32 {
        match self {
            SegmentKind::Read => READ,
            SegmentKind::Code => READ | EXECUTE,
            SegmentKind::Write => READ | WRITE,
        }
    }

    fn section_flags(self) -> u64 {
        match self {
            SegmentKind::Read => SHF_ALLOC,
            SegmentKind::Code => SHF_ALLOC | SHF_EXECINSTR,
            SegmentKind::Write => SHF_ALLOC | SHF_WRITE,
        }
    }

    /// Its addresses minus its file offsets: each segment has pages of its own.
    fn shift(self) -> u64 {
        match self {
            SegmentKind::Read => 0,
            SegmentKind::Code => PAGE_BYTES,
            SegmentKind::Write => 2 * PAGE_BYTES,
        }
    }
}

/// A loaded section. Sections of a segment are adjacent, and segments are in order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SectionSpec {
    pub(crate) name: &'static str,
    pub(crate) kind: u32,
    pub(crate) align: usize,
    pub(crate) size: usize,
    pub(crate) segment: SegmentKind,
    /// The number of the section that it refers to.
    pub(crate) link: usize,
    pub(crate) entry_size: u64,
}

/// Position of a section in the file and in memory.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SectionPosition {
    pub(crate) offset: usize,
    pub(crate) address: u64,
    pub(crate) size: usize,
}

impl SectionPosition {
    fn end(&self) -> usize {
        self.offset + self.size
    }

    /// Its range in the file.
    pub(crate) fn range(&self) -> Range<usize> {
        self.offset..self.end()
    }
}

/// Number of sections, without the null section and the last one, which has their names.
pub(crate) const SECTIONS: usize = 10;

/// Positions of a file's sections. `None` if it is not such a file.
pub(crate) fn parts(file: &[u8]) -> Option<[SectionPosition; SECTIONS]> {
    let word = |at: usize| {
        let bytes = file.get(at..)?.first_chunk()?;
        Some(u64::from_le_bytes(*bytes))
    };
    let headers = usize::try_from(word(40)?).ok()?;
    let headers = file.get(headers..)?.chunks_exact(SHDR);
    if headers.len() != SECTIONS + 2 {
        return None;
    }
    let mut parts = [SectionPosition::default(); SECTIONS];
    for (part, header) in parts.iter_mut().zip(headers.skip(1)) {
        let word = |at: usize| {
            header
                .get(at..)?
                .first_chunk()
                .map(|word| u64::from_le_bytes(*word))
        };
        let number = |at| usize::try_from(word(at)?).ok();
        *part = SectionPosition {
            offset: number(24)?,
            address: word(16)?,
            size: number(32)?,
        };
        if part.offset.checked_add(part.size)? > file.len() {
            return None;
        }
    }
    Some(parts)
}

/// Targets of the program headers.
#[derive(Debug)]
pub(crate) struct HeaderTargets {
    pub(crate) machine: u16,
    /// The notes, in order.
    pub(crate) notes: [SectionPosition; 2],
    pub(crate) dynamic: SectionPosition,
    pub(crate) eh_frame_hdr: SectionPosition,
}

/// Assigns positions to sections.
pub(crate) fn place(sections: &[SectionSpec; SECTIONS]) -> [SectionPosition; SECTIONS] {
    let mut offset = EHDR + PHDRS * PHDR;
    sections.map(|section| {
        offset = offset.next_multiple_of(section.align);
        let part = SectionPosition {
            offset,
            address: offset as u64 + section.segment.shift(),
            size: section.size,
        };
        offset += section.size;
        part
    })
}

/// Writes the file from begin to end, piece by piece: headers, sections with their contents,
/// section headers.
pub(crate) fn write(
    sections: &[SectionSpec; SECTIONS],
    parts: &[SectionPosition; SECTIONS],
    contents: [&[u8]; SECTIONS],
    targets: &HeaderTargets,
    put: &mut dyn FnMut(&[u8]),
) {
    let mut out = FileWriter { put, at: 0 };
    let names = sections.iter().map(|section| section.name.len() + 1);
    let strings = SectionPosition {
        offset: parts.iter().map(SectionPosition::end).max().unwrap_or(0),
        address: 0,
        size: 1 + names.sum::<usize>() + LAST_NAME.len() + 1,
    };
    let section_headers = strings.end().next_multiple_of(8);
    out.file_header(targets.machine, section_headers);
    for segment in SegmentKind::ALL {
        let own = sections.iter().zip(parts);
        let own = own.filter(|(section, _)| section.segment == segment);
        let span = span(own.map(|(_, part)| *part));
        let span = match segment {
            // The headers are mapped, too.
            SegmentKind::Read => SectionPosition {
                offset: 0,
                address: 0,
                size: span.end(),
            },
            _ => span,
        };
        out.segment(PT_LOAD, segment.permissions(), span, PAGE_BYTES);
    }
    out.segment(PT_DYNAMIC, READ | WRITE, targets.dynamic, 8);
    out.segment(PT_NOTE, READ, span(targets.notes.into_iter()), 4);
    out.segment(PT_GNU_EH_FRAME, READ, targets.eh_frame_hdr, 4);
    out.segment(PT_GNU_STACK, READ | WRITE, SectionPosition::default(), 16);
    for (part, content) in parts.iter().zip(contents) {
        out.zeros_up_to(part.offset);
        out.put(content);
    }
    out.put(&[0]);
    let names = sections.iter().map(|section| section.name);
    for name in names.chain([LAST_NAME]) {
        out.put(name.as_bytes());
        out.put(&[0]);
    }
    out.zeros_up_to(section_headers + SHDR);
    let mut name = 1;
    for (section, part) in sections.iter().zip(parts) {
        out.section(section, *part, name, section.segment.section_flags());
        name += section.name.len() + 1;
    }
    let shstrtab = SectionSpec {
        name: LAST_NAME,
        kind: SHT_STRTAB,
        align: 1,
        size: strings.size,
        segment: SegmentKind::Read,
        link: 0,
        entry_size: 0,
    };
    out.section(&shstrtab, strings, name, 0);
}

/// From the begin of the first to the end of the last.
fn span(parts: impl Iterator<Item = SectionPosition>) -> SectionPosition {
    let parts = parts.reduce(|first, last| SectionPosition {
        size: last.end() - first.offset,
        ..first
    });
    parts.unwrap_or_default()
}

/// Output of the file, and the number of bytes written.
struct FileWriter<'p> {
    put: &'p mut dyn FnMut(&[u8]),
    at: usize,
}

impl FileWriter<'_> {
    fn put(&mut self, bytes: &[u8]) {
        (self.put)(bytes);
        self.at += bytes.len();
    }

    fn half(&mut self, number: usize) {
        self.put(&u16::try_from(number).unwrap_or(0).to_le_bytes());
    }

    fn number(&mut self, number: u32) {
        self.put(&number.to_le_bytes());
    }

    fn words(&mut self, words: &[u64]) {
        words.iter().for_each(|word| self.put(&word.to_le_bytes()));
    }

    fn zeros_up_to(&mut self, offset: usize) {
        while self.at < offset {
            self.put(&[0]);
        }
    }

    fn file_header(&mut self, machine: u16, section_headers: usize) {
        self.put(b"\x7fELF\x02\x01\x01");
        self.zeros_up_to(16);
        self.put(&ET_DYN.to_le_bytes());
        self.put(&machine.to_le_bytes());
        self.number(1);
        self.words(&[0, EHDR as u64, section_headers as u64]);
        self.number(0);
        let sections = SECTIONS + 2;
        for number in [EHDR, PHDR, PHDRS, SHDR, sections, sections - 1] {
            self.half(number);
        }
    }

    fn segment(&mut self, kind: u32, permissions: u32, position: SectionPosition, align: u64) {
        self.number(kind);
        self.number(permissions);
        let (offset, size) = (position.offset as u64, position.size as u64);
        self.words(&[
            offset,
            position.address,
            position.address,
            size,
            size,
            align,
        ]);
    }

    fn section(
        &mut self,
        section: &SectionSpec,
        position: SectionPosition,
        name: usize,
        flags: u64,
    ) {
        self.number(u32::try_from(name).unwrap_or(0));
        self.number(section.kind);
        self.words(&[
            flags,
            position.address,
            position.offset as u64,
            position.size as u64,
        ]);
        self.number(u32::try_from(section.link).unwrap_or(0));
        // For a symbol table: the first symbol that is not local.
        self.number(u32::from(section.kind == SHT_DYNSYM));
        self.words(&[section.align as u64, section.entry_size]);
    }
}
