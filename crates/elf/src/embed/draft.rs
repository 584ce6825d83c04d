//! The new file's layout, and writing it.

use std::ops::Range;

use object::elf;

use super::encode::Encoding;
use super::error::EmbedError;
use super::existing::{EmbeddedSection, TABLES};
use super::rest::has_bytes;
use super::{PAGE_BYTES, rest};
use crate::elf::{ElfFile, load, slice};
use crate::header::{Phdr, Shdr};
use crate::symtab::{self, SymbolTable};

/// The alignment of the displaced blocks behind the section, and the minimum alignment of the
/// section.
const ALIGN: u64 = 16;

/// A file offset and its address in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LoadLocation {
    pub(super) offset: u64,
    pub(super) vaddr: u64,
}

impl LoadLocation {
    pub(super) fn from_segment(segment: &Phdr) -> LoadLocation {
        LoadLocation {
            offset: segment.offset,
            vaddr: segment.vaddr,
        }
    }

    /// The location `delta` bytes further; the caller has checked that it exists.
    fn plus(self, delta: u64) -> LoadLocation {
        LoadLocation {
            offset: self.offset.wrapping_add(delta),
            vaddr: self.vaddr.wrapping_add(delta),
        }
    }
}

/// Loaded bytes that move.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shift {
    pub(super) from: LoadLocation,
    pub(super) length: u64,
    pub(super) to: LoadLocation,
}

impl Shift {
    /// The new location of the byte at that file offset, if it moves.
    fn of_offset(&self, offset: u64) -> Option<LoadLocation> {
        let delta = offset.checked_sub(self.from.offset)?;
        (delta < self.length).then(|| self.to.plus(delta))
    }

    /// The new location of the byte at that address, if it moves.
    fn of_vaddr(&self, vaddr: u64) -> Option<LoadLocation> {
        let delta = vaddr.checked_sub(self.from.vaddr)?;
        (delta < self.length).then(|| self.to.plus(delta))
    }
}

/// Loaded bytes that move into the new segment: to `at` bytes behind the end of the section, after
/// rounding that up.
#[derive(Debug, Clone, Copy)]
pub(super) struct DisplacedBlock {
    pub(super) from: LoadLocation,
    pub(super) length: u64,
    pub(super) at: u64,
}

/// All bytes that must move.
#[derive(Debug, Default)]
pub(super) struct Displacements {
    pub(super) shifts: Vec<Shift>,
    pub(super) displaced: Vec<DisplacedBlock>,
}

impl Displacements {
    /// The size of all displaced blocks behind the section, in bytes.
    fn displaced_size(&self) -> u64 {
        let ends = self.displaced.iter().map(|g| g.at.saturating_add(g.length));
        ends.max().unwrap_or(0)
    }
}

/// The sections to embed, one behind the other, in one segment.
pub(super) struct EmbedRequest<'a> {
    pub(super) sections: &'a [NewSection<'a>],
    /// Makes the bytes of the segment for its address.
    pub(super) content: &'a dyn Fn(u64) -> Vec<u8>,
    pub(super) size: u64,
    pub(super) align: u64,
    /// The kind and alignment of a program header that points at the first section, if one is
    /// needed.
    pub(super) leader: Option<(elf::ProgramType, u64)>,
}

/// A section of the new segment.
pub(super) struct NewSection<'a> {
    pub(super) name: &'a str,
    pub(super) kind: elf::SectionType,
    /// The offset in the segment, in bytes.
    pub(super) start: u64,
    pub(super) size: u64,
    pub(super) align: u64,
}

/// The new segment.
struct NewSegment {
    location: LoadLocation,
    /// The offset of the displaced blocks in the segment.
    displaced: u64,
    size: u64,
}

impl NewSegment {
    /// A program header for `size` bytes from its start.
    fn header(&self, kind: elf::ProgramType, size: u64, align: u64) -> Phdr {
        Phdr {
            kind: kind.0,
            flags: elf::PF_R.0,
            offset: self.location.offset,
            vaddr: self.location.vaddr,
            paddr: self.location.vaddr,
            file_size: size,
            mem_size: size,
            align,
        }
    }
}

/// An ELF file that is being rewritten. Its program headers lack that of the new segment.
pub(super) struct Draft<'a> {
    pub(super) file: &'a ElfFile,
    pub(super) encoding: Encoding,
    pub(super) programs: Vec<Phdr>,
    pub(super) sections: Vec<Shdr>,
}

impl<'a> Draft<'a> {
    pub(super) fn new(file: &'a ElfFile) -> Draft<'a> {
        Draft {
            file,
            encoding: Encoding::from_file(file),
            programs: file.program_headers().to_vec(),
            sections: file.section_headers().to_vec(),
        }
    }

    /// The program header table in the file, as read.
    pub(super) fn program_table(&self) -> Range<u64> {
        let start = self.file.headers.program_header_offset;
        let count = self.file.program_headers().len() as u64;
        start..start.saturating_add(count.saturating_mul(self.encoding.program_size()))
    }

    /// Removes a segment that was embedded before; returns the other blocks in it.
    pub(super) fn remove_segment(&mut self, old: &EmbeddedSection) -> Displacements {
        self.programs.remove(old.program);
        let guests = old.displaced.map(|start| DisplacedBlock {
            from: old.location.plus(start),
            length: old.size - start,
            at: old.location.plus(start).vaddr % ALIGN,
        });
        Displacements {
            shifts: Vec::new(),
            displaced: guests.into_iter().collect(),
        }
    }

    /// The bytes of the new file. The first `rest` bytes are those of the old file.
    pub(super) fn write(
        mut self,
        request: &EmbedRequest<'_>,
        displacements: &Displacements,
        old: Option<&EmbeddedSection>,
        rest: u64,
    ) -> Result<Vec<u8>, EmbedError> {
        let site = self.site(request, displacements, old, rest)?;
        let guests = displacements.displaced.iter().map(|guest| Shift {
            from: guest.from,
            length: guest.length,
            to: site.location.plus(site.displaced).plus(guest.at),
        });
        let shifts: Vec<_> = displacements.shifts.iter().copied().chain(guests).collect();
        let mut out = self.file.bytes().to_vec();
        self.repoint(&mut out, &shifts);
        let moved = take_bytes(&mut out, &shifts);
        if let Some(old) = old {
            fill(&mut out, old.location.offset, old.size);
        }
        out.truncate(usize::try_from(rest).unwrap_or(usize::MAX));
        put(
            &mut out,
            site.location.offset,
            &(request.content)(site.location.vaddr),
        );
        for (shift, bytes) in shifts.iter().zip(&moved) {
            put(&mut out, shift.to.offset, bytes);
        }
        self.write_programs(&mut out, request, &site)?;
        self.write_sections(&mut out, request, &site, old)?;
        self.check("the size of the file", Some(out.len() as u64))?;
        Ok(out)
    }

    /// The location of the new segment: behind everything, or that of the old one if that is in the
    /// middle of the file and large enough.
    fn site(
        &self,
        request: &EmbedRequest<'_>,
        displacements: &Displacements,
        old: Option<&EmbeddedSection>,
        rest: u64,
    ) -> Result<NewSegment, EmbedError> {
        let content = request.size;
        let guests = content.next_multiple_of(ALIGN);
        let size = match displacements.displaced_size() {
            0 => content,
            length => self.check("the size of the segment", guests.checked_add(length))?,
        };
        let reusable = old.filter(|old| {
            let aligned = old.location.vaddr % request.align.max(ALIGN) == 0;
            old.location.offset < rest && size <= old.size && aligned
        });
        let place = match reusable {
            Some(old) => old.location,
            None => self.behind_everything(rest, request.align.max(ALIGN))?,
        };
        self.check("the end of the segment", place.vaddr.checked_add(size))?;
        self.check("the size of the file", place.offset.checked_add(size))?;
        Ok(NewSegment {
            location: place,
            displaced: guests,
            size,
        })
    }

    fn behind_everything(&self, rest: u64, align: u64) -> Result<LoadLocation, EmbedError> {
        let page = self.page();
        let what = "the end of the last segment";
        let ends = self.loads().map(|p| p.vaddr.checked_add(p.mem_size));
        let ends = ends.collect::<Option<Vec<_>>>().unwrap_or(vec![u64::MAX]);
        let end = ends.into_iter().max().unwrap_or(0);
        let end = self.check(what, end.checked_next_multiple_of(page))?;
        let offset = rest.next_multiple_of(align);
        let vaddr = self.check(what, end.checked_add(offset % page))?;
        Ok(LoadLocation { offset, vaddr })
    }

    fn loads(&self) -> impl Iterator<Item = &Phdr> {
        self.programs.iter().filter(|p| p.kind == elf::PT_LOAD.0)
    }

    /// The largest page size that the file can be mapped with.
    fn page(&self) -> u64 {
        let aligns = self.loads().map(|p| p.align);
        let pages = aligns.filter(|align| align.is_power_of_two() && *align >= PAGE_BYTES);
        pages.min().unwrap_or(PAGE_BYTES)
    }

    /// Checks a size or an address against what the file's numbers can hold.
    fn check(&self, what: &'static str, value: Option<u64>) -> Result<u64, EmbedError> {
        let limit = self.encoding.limit();
        value
            .filter(|value| *value <= limit)
            .ok_or_else(|| EmbedError::TooLarge {
                file: self.file.path().to_path_buf(),
                what,
                value: value.unwrap_or(u64::MAX),
                limit,
            })
    }

    /// Updates all references to moved bytes.
    fn repoint(&mut self, out: &mut [u8], shifts: &[Shift]) {
        self.repoint_symbols(out, shifts);
        self.repoint_dynamic(out, shifts);
        let find = |offset| shifts.iter().find_map(|shift| shift.of_offset(offset));
        let loaded = |s: &&mut Shdr| s.is_allocated() && has_bytes(s);
        for section in self.sections.iter_mut().filter(loaded) {
            if let Some(to) = find(section.offset) {
                (section.offset, section.addr) = (to.offset, to.vaddr);
            }
        }
        let inner = |p: &&mut Phdr| {
            let kind = elf::ProgramType(p.kind);
            !matches!(kind, elf::PT_LOAD | elf::PT_PHDR) && p.file_size > 0
        };
        for program in self.programs.iter_mut().filter(inner) {
            if let Some(to) = find(program.offset) {
                let physical = program.paddr.wrapping_sub(program.vaddr);
                program.paddr = to.vaddr.wrapping_add(physical);
                (program.offset, program.vaddr) = (to.offset, to.vaddr);
            }
        }
    }

    fn repoint_dynamic(&self, out: &mut [u8], shifts: &[Shift]) {
        let Some(dynamic) = self.file.segment_of_kind(elf::PT_DYNAMIC) else {
            return;
        };
        let (word, little) = (self.encoding.word_size(), self.file.is_little_endian());
        let data = slice(self.file.bytes(), dynamic.offset, dynamic.file_size);
        let entries = data.unwrap_or_default().chunks_exact(2 * word);
        let at = (dynamic.offset..).step_by(2 * word);
        for (entry, at) in entries.zip(at) {
            let (tag, value) = entry.split_at_checked(word).unwrap_or_default();
            let (tag, value) = (load(tag, little), load(value, little));
            let is_table = TABLES.iter().any(|(_, t)| i64::try_from(tag) == Ok(t.0));
            if let (true, Some(to)) = (is_table, shifts.iter().find_map(|s| s.of_vaddr(value))) {
                overwrite(out, at + word as u64, &self.encoding.word(to.vaddr));
            }
        }
    }

    fn repoint_symbols(&self, out: &mut [u8], shifts: &[Shift]) {
        if shifts.is_empty() {
            return;
        }
        let file = self.file;
        for index in file.indices(|_, s| s.is(elf::SHT_SYMTAB) || s.is(elf::SHT_DYNSYM)) {
            let Ok(table) = SymbolTable::from_section(file, index) else {
                continue;
            };
            let start = file.section_header(index).map_or(0, |s| s.offset);
            for at in 0..table.len() {
                let Some(to) = table.get(at).and_then(|s| moved_symbol(file, &s, shifts)) else {
                    continue;
                };
                let entry = start + (at * table.entry_size()) as u64;
                let field = entry + table.value_offset();
                overwrite(out, field, &self.encoding.word(to));
            }
        }
    }

    fn write_programs(
        &mut self,
        out: &mut Vec<u8>,
        request: &EmbedRequest<'_>,
        segment: &NewSegment,
    ) -> Result<(), EmbedError> {
        let header = segment.header(elf::PT_LOAD, segment.size, self.page());
        let before = |p: &Phdr| p.kind == elf::PT_LOAD.0 && p.vaddr < header.vaddr;
        let last = self.programs.iter().rposition(before);
        self.programs
            .insert(last.map_or(0, |index| index + 1), header);
        if let Some((kind, align)) = request.leader {
            let size = request.sections.first().map_or(0, |part| part.size);
            self.lead(segment.header(kind, size, align));
        }
        let count = self.count("program headers", self.programs.len(), u16::MAX - 1)?;
        let start = self.file.headers.program_header_offset;
        let size = u64::from(count) * self.encoding.program_size();
        let table = self.programs.iter_mut();
        for program in table.filter(|p| p.kind == elf::PT_PHDR.0) {
            (program.file_size, program.mem_size) = (size, size);
        }
        self.cover(start..start.saturating_add(size));
        let encoded = self.programs.iter().map(|p| self.encoding.program(p));
        put(out, start, &encoded.collect::<Vec<_>>().concat());
        let field = self.encoding.header_fields().program_count;
        put(out, field, &self.encoding.number(count.into(), 2));
        Ok(())
    }

    /// Replaces the program header of that kind, or adds one.
    fn lead(&mut self, header: Phdr) {
        let mut programs = self.programs.iter_mut();
        match programs.find(|p| p.kind == header.kind) {
            Some(old) => *old = header,
            None => self.programs.push(header),
        }
    }

    /// Extends the segment of the program header table if the table has outgrown it.
    fn cover(&mut self, table: Range<u64>) {
        let old = self.program_table();
        let is_home = |p: &&mut Phdr| {
            let covered = p.offset..p.offset.saturating_add(p.file_size);
            p.kind == elf::PT_LOAD.0 && covered.contains(&old.start) && old.end <= covered.end
        };
        if let Some(home) = self.programs.iter_mut().find(is_home) {
            let size = table.end.saturating_sub(home.offset);
            home.file_size = home.file_size.max(size);
            home.mem_size = home.mem_size.max(size);
        }
    }

    fn write_sections(
        &mut self,
        out: &mut Vec<u8>,
        request: &EmbedRequest<'_>,
        segment: &NewSegment,
        old: Option<&EmbeddedSection>,
    ) -> Result<(), EmbedError> {
        let Some(mut names) = self.names()? else {
            return Ok(());
        };
        for part in request.sections {
            let name;
            (names, name) = with_name(names, part.name);
            let header = Shdr {
                name: u32::try_from(name).unwrap_or(0),
                kind: part.kind.0,
                flags: elf::SHF_ALLOC.0,
                addr: segment.location.vaddr + part.start,
                offset: segment.location.offset + part.start,
                size: part.size,
                link: 0,
                info: 0,
                align: part.align,
                entry_size: 0,
            };
            match old.and_then(|old| self.sections.get_mut(old.section?)) {
                Some(old) => *old = header,
                None => {
                    names = self.rename(names, part.name);
                    self.sections.push(header);
                }
            }
        }
        self.write_section_table(out, names)
    }

    /// Writes the section names and headers, and their offsets into the ELF header.
    pub(super) fn write_section_table(
        &mut self,
        out: &mut Vec<u8>,
        names: Vec<u8>,
    ) -> Result<(), EmbedError> {
        let limit = elf::SHN_LORESERVE - 1;
        let count = self.count("section headers", self.sections.len(), limit)?;
        let index = usize::try_from(self.file.headers.section_names).unwrap_or(usize::MAX);
        if let Some(section) = self.sections.get_mut(index) {
            (section.offset, section.size) = (out.len() as u64, names.len() as u64);
        }
        out.extend(names);
        out.resize(out.len().next_multiple_of(8), 0);
        let fields = self.encoding.header_fields();
        let table = self.encoding.word(out.len() as u64);
        put(out, fields.section_offset, &table);
        let count = self.encoding.number(count.into(), 2);
        put(out, fields.section_count, &count);
        out.extend(self.sections.iter().flat_map(|s| self.encoding.section(s)));
        Ok(())
    }

    /// Renames the sections of that name, so that look-ups by name find the new one.
    fn rename(&mut self, names: Vec<u8>, name: &str) -> Vec<u8> {
        let file = self.file;
        let is_named = |section: &&mut Shdr| file.is_named(section, name);
        let mut named = self.sections.iter_mut().filter(is_named).peekable();
        if named.peek().is_none() {
            return names;
        }
        let (names, other) = with_name(names, &format!("{name}.old"));
        named.for_each(|section| section.name = u32::try_from(other).unwrap_or(0));
        names
    }

    /// The section names, if there are section headers.
    pub(super) fn names(&self) -> Result<Option<Vec<u8>>, EmbedError> {
        if self.sections.is_empty() {
            return Ok(None);
        }
        let index = self.file.headers.section_names;
        let header = usize::try_from(index).ok();
        let header = header.and_then(|index| self.sections.get(index));
        let names = header.and_then(|s| slice(self.file.bytes(), s.offset, s.size));
        match (header, names) {
            (Some(header), Some(names))
                if header.is(elf::SHT_STRTAB) && !header.has_flag(elf::SHF_ALLOC) =>
            {
                Ok(Some(names.to_vec()))
            }
            _ => Err(EmbedError::Module(self.file.malformed(
                "the section of the section names",
                rest::section_table(self.file).start,
                index.into(),
                "it is none, cannot be read, or is part of the program",
            ))),
        }
    }

    fn count(&self, what: &'static str, count: usize, limit: u16) -> Result<u16, EmbedError> {
        u16::try_from(count)
            .ok()
            .filter(|count| *count <= limit)
            .ok_or_else(|| EmbedError::TooLarge {
                file: self.file.path().to_path_buf(),
                what,
                value: count as u64,
                limit: limit.into(),
            })
    }
}

/// The new value of a symbol, if it is in a section that moves.
fn moved_symbol(file: &ElfFile, symbol: &symtab::RawSymbol, shifts: &[Shift]) -> Option<u64> {
    let symtab::DefiningSection::Section(section) = symbol.section else {
        return None;
    };
    let header = file.section_header(section).filter(|s| has_bytes(s))?;
    if !symbol.is_within(section, header) {
        return None;
    }
    let to = shifts.iter().find_map(|s| s.of_offset(header.offset))?;
    let delta = to.vaddr.wrapping_sub(header.addr);
    Some(symbol.value.wrapping_add(delta))
}

/// The name table with one more name, unless it has the name already; and the name's offset.
pub(super) fn with_name(mut names: Vec<u8>, name: &str) -> (Vec<u8>, usize) {
    let wanted = [name.as_bytes(), b"\0"].concat();
    let there = names.windows(wanted.len()).position(|at| at == wanted);
    let at = there.unwrap_or_else(|| {
        if names.last() != Some(&0) {
            names.push(0);
        }
        names.extend(&wanted);
        names.len() - wanted.len()
    });
    (names, at)
}

/// Returns the bytes of these blocks, and zeroes them.
fn take_bytes(out: &mut [u8], shifts: &[Shift]) -> Vec<Vec<u8>> {
    let bytes = |s: &Shift| {
        slice(out, s.from.offset, s.length)
            .unwrap_or_default()
            .to_vec()
    };
    let lifted = shifts.iter().map(bytes).collect();
    for shift in shifts {
        fill(out, shift.from.offset, shift.length);
    }
    lifted
}

fn range(out: &mut [u8], offset: u64, length: u64) -> &mut [u8] {
    let start = usize::try_from(offset).unwrap_or(usize::MAX);
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    out.get_mut(start..start.saturating_add(length))
        .unwrap_or_default()
}

fn fill(out: &mut [u8], offset: u64, length: u64) {
    range(out, offset, length).fill(0);
}

/// Overwrites existing bytes.
pub(super) fn overwrite(out: &mut [u8], offset: u64, bytes: &[u8]) {
    let there = range(out, offset, bytes.len() as u64);
    there
        .iter_mut()
        .zip(bytes)
        .for_each(|(to, from)| *to = *from);
}

/// Writes bytes at an offset, padding with zeros if the file ends before it.
fn put(out: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    let end = offset.saturating_add(bytes.len() as u64);
    if let Ok(end) = usize::try_from(end) {
        out.resize(out.len().max(end), 0);
    }
    overwrite(out, offset, bytes);
}
