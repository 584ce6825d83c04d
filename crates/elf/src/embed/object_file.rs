//! An object file with another `.eh_frame`.
//!
//! An object file consists of its header, its sections and their headers, so it is laid out anew.
//! All sections keep their numbers and their order. All except the tables named here keep their
//! bytes.
//!
//! Addresses in the unwind table are relocated against section symbols, as assemblers do it. The
//! entries of a COMDAT group's code are not in the group, but linkers drop them with it. Named
//! symbols may have duplicates and may be replaced; sections may not. A section without a symbol
//! gets one. Local symbols precede global ones, so the numbers of the latter change then, in all
//! references.
//!
//! The ELF builder of `object` 0.40 does not serve here: it refuses files with section groups, or
//! with LLVM's lists of symbols.

use std::borrow::Cow;
use std::ops::Range;

use object::elf::{self, RelocationType};
use unspool_rows::Vaddr;
use unspool_rows::leb128::{put_unsigned, unsigned};

use super::draft::overwrite;
use super::encode::Encoding;
use super::error::EmbedError;
use super::rest::has_bytes;
use crate::arch;
use crate::elf::{ElfFile, slice};
use crate::header::{self, Shdr};
use crate::symtab::{DefiningSection, SymbolTable};

/// The content of a new `.eh_frame`.
#[derive(Debug, Clone, Copy)]
pub struct NewEhFrame<'n> {
    /// The bytes.
    pub bytes: &'n [u8],
    /// The ranges kept of the old section, and their new offsets. Relocations there move with them,
    /// and no others may exist. Ascending.
    pub kept: &'n [(Range<u64>, u64)],
    /// Offsets of 4-byte fields, and the address in the file's layout to write there, relative to
    /// the field.
    pub pointers: &'n [(u64, Vaddr)],
}

/// The bytes of an object file's `.eh_frame`, as the file has them: before relocation. Empty if it
/// has none.
///
/// # Errors
///
/// [`EmbedError`] if [`replace_eh_frame`] could not write a table for the file.
pub fn eh_frame_of_object(file: &ElfFile) -> Result<&[u8], EmbedError> {
    check(file)?;
    let old = eh_frame(file)?.and_then(|index| file.section_header(index));
    let bytes = old.and_then(|header| slice(file.bytes(), header.offset, header.size));
    Ok(bytes.unwrap_or_default())
}

/// A copy of an object file with another `.eh_frame`, and relocations for it.
///
/// All other sections stay, with their numbers. Missing section symbols are added, and the names of
/// the two sections if they are missing. Allocates a few times the file's size.
///
/// # Errors
///
/// [`EmbedError`] if the file is not an object file of x86-64, is damaged, has several sections of
/// that name, or has been stripped of its symbols. Also if it refers to symbols in an unknown way.
pub fn replace_eh_frame(file: &ElfFile, new: &NewEhFrame<'_>) -> Result<Vec<u8>, EmbedError> {
    check(file)?;
    let mut object = ObjectRewriter::read(file)?;
    let eh_frame = match eh_frame(file)? {
        Some(index) => index,
        None => object.add_eh_frame()?,
    };
    let relocations = object.relocations_of(eh_frame)?;
    let symbols = object.section_symbols(new)?;
    let table = object.relocated(relocations, new, &symbols)?;
    object.set(relocations, table);
    object.set(eh_frame, new.bytes.to_vec());
    Ok(object.write())
}

/// The size of a symbol table entry, and of a relocation with an addend, in bytes.
const SYMBOL: usize = 24;
const RELA: usize = 24;
/// The size of a relocation without an addend, in bytes.
const REL: usize = 16;

/// The maximum alignment of sections in the file: readers look at words.
const MAX_SECTION_ALIGN: u64 = 16;

/// Refuses files that are unsupported or cannot keep the parts that stay.
fn check(file: &ElfFile) -> Result<(), EmbedError> {
    file.check_section_headers()?;
    let why = if !file.is_relocatable() {
        "not an object file"
    } else if eh_frame_distance(file).is_none() || !file.is_little_endian() {
        "only those of x86-64 are known"
    } else if !file.program_headers().is_empty() {
        "it has program headers, which object files have not"
    } else {
        return Ok(());
    };
    Err(refused(file, None, why))
}

/// The relocation type of a distance in `.eh_frame`.
fn eh_frame_distance(file: &ElfFile) -> Option<RelocationType> {
    arch::format(file.abi().arch).eh_frame_distance
}

fn refused(file: &ElfFile, offset: impl Into<Option<u64>>, reason: &'static str) -> EmbedError {
    EmbedError::Object {
        file: file.path().to_path_buf(),
        offset: offset.into(),
        reason,
    }
}

/// The `.eh_frame` section.
fn eh_frame(file: &ElfFile) -> Result<Option<usize>, EmbedError> {
    let mut found = file.indices(|file, header| file.is_named(header, ".eh_frame"));
    let first = found.next();
    let header = |index| file.section_header(index);
    if let Some(other) = found.next().and_then(header) {
        let why = "it has several sections .eh_frame; `ld -r` makes one of them";
        return Err(refused(file, other.offset, why));
    }
    let Some(found) = first.and_then(header) else {
        return Ok(None);
    };
    let why = if found.has_flag(elf::SHF_COMPRESSED) {
        "its .eh_frame is compressed"
    } else if found.has_flag(elf::SHF_GROUP) {
        "its .eh_frame is in a section group, with which all of it goes"
    } else {
        return Ok(first);
    };
    Err(refused(file, found.offset, why))
}

/// An object file that is being rewritten.
struct ObjectRewriter<'f> {
    file: &'f ElfFile,
    /// The section headers, as in the file.
    sections: Vec<Shdr>,
    contents: Vec<Cow<'f, [u8]>>,
    /// The index of the symbol table.
    symbols: usize,
}

impl<'f> ObjectRewriter<'f> {
    fn read(file: &'f ElfFile) -> Result<ObjectRewriter<'f>, EmbedError> {
        // An opened file has its sections at addresses; this needs the raw headers.
        let sections = header::parse(file.path(), file.bytes())?.sections?;
        let bytes_of = |header: &Shdr| {
            if has_bytes(header) {
                let bytes = slice(file.bytes(), header.offset, header.size);
                bytes.map(Cow::Borrowed).ok_or_else(|| {
                    file.truncated("a section".to_owned(), header.offset, header.size)
                })
            } else {
                Ok(Cow::Borrowed(&[][..]))
            }
        };
        let contents = sections.iter().map(bytes_of).collect::<Result<_, _>>()?;
        let symbols = sections.iter().position(|s| s.is(elf::SHT_SYMTAB));
        let symbols = symbols.ok_or_else(|| {
            let why = "it has no symbol table, which relocations need: strip may have taken it";
            refused(file, None, why)
        })?;
        let object = ObjectRewriter {
            file,
            sections,
            contents,
            symbols,
        };
        object.check_layout()?;
        Ok(object)
    }

    /// Refuses a file in which sections overlap, or that has bytes behind them, such as a kernel
    /// module's signature.
    fn check_layout(&self) -> Result<(), EmbedError> {
        let file = self.file;
        let table = super::rest::section_table(file);
        let sections = self.sections.iter().filter(|header| has_bytes(header));
        let sections = sections.map(|header| header.offset..header.offset + header.size);
        let mut parts: Vec<Range<u64>> = sections.chain([table]).collect();
        parts.sort_by_key(|part| (part.start, part.end));
        let overlapping = parts.windows(2).find_map(|pair| match pair {
            [one, next] if next.start < one.end => Some(next.start),
            _ => None,
        });
        if let Some(offset) = overlapping {
            return Err(refused(file, offset, "two of its sections overlap"));
        }
        let end = parts.last().map_or(0, |part| part.end);
        let behind = (end..).zip(file.bytes().iter().skip(usize::try_from(end).unwrap_or(0)));
        let mut behind = behind.filter(|(_, byte)| **byte != 0);
        match behind.next() {
            None => Ok(()),
            Some((offset, _)) => Err(EmbedError::Trailing {
                file: file.path().to_path_buf(),
                offset,
                length: (file.bytes().len() as u64).saturating_sub(offset),
            }),
        }
    }

    fn content(&self, index: usize) -> &[u8] {
        self.contents.get(index).map_or(&[], |content| content)
    }

    fn set(&mut self, index: usize, content: Vec<u8>) {
        if let (Some(header), Some(old)) =
            (self.sections.get_mut(index), self.contents.get_mut(index))
        {
            header.size = content.len() as u64;
            *old = Cow::Owned(content);
        }
    }

    /// Adds a section without bytes.
    fn add(&mut self, name: &str, header: Shdr) -> Result<usize, EmbedError> {
        let names = usize_of(self.file.headers.section_names);
        let is_names = |header: &Shdr| header.is(elf::SHT_STRTAB);
        if !self.sections.get(names).is_some_and(is_names) {
            let why = "its header names no section that has the names of sections";
            return Err(refused(self.file, None, why));
        }
        let mut content = self.content(names).to_vec();
        let too_large = |_| refused(self.file, None, "its section names take more than 4 GiB");
        let place = u32::try_from(content.len()).map_err(too_large)?;
        content.extend(name.as_bytes());
        content.push(0);
        self.set(names, content);
        self.sections.push(Shdr {
            name: place,
            ..header
        });
        self.contents.push(Cow::Borrowed(&[]));
        Ok(self.sections.len() - 1)
    }

    fn add_eh_frame(&mut self) -> Result<usize, EmbedError> {
        let header = Shdr {
            kind: elf::SHT_PROGBITS.0,
            flags: elf::SHF_ALLOC.0,
            align: 8,
            ..EMPTY
        };
        self.add(".eh_frame", header)
    }

    /// The relocation section of a section; it is added if there is none.
    fn relocations_of(&mut self, index: usize) -> Result<usize, EmbedError> {
        let is_of = |header: &Shdr, kind| header.is(kind) && usize_of(header.info) == index;
        let old = self.sections.iter();
        if let Some(old) = old.clone().find(|header| is_of(header, elf::SHT_REL)) {
            let why = "the relocations of its .eh_frame have no addends";
            return Err(refused(self.file, old.offset, why));
        }
        if let Some(old) = old.clone().position(|header| is_of(header, elf::SHT_RELA)) {
            return Ok(old);
        }
        let number = |index: usize| u32::try_from(index).unwrap_or(u32::MAX);
        let header = Shdr {
            kind: elf::SHT_RELA.0,
            flags: elf::SHF_INFO_LINK.0,
            link: number(self.symbols),
            info: number(index),
            align: 8,
            entry_size: RELA as u64,
            ..EMPTY
        };
        self.add(".rela.eh_frame", header)
    }

    /// The section of an address in the file's layout, and the offset in that section.
    fn place_of(&self, address: Vaddr) -> Result<(usize, u64), EmbedError> {
        let index = self.file.sections_by_address.find(address.0);
        let place = index.and_then(|index| {
            let start = self.file.section_header(index)?.addr;
            Some((index, address.0.checked_sub(start)?))
        });
        place.ok_or_else(|| refused(self.file, None, "an address of its table is in no section"))
    }

    /// The section symbols: section numbers, ascending, and the numbers of their symbols. A section
    /// without a symbol gets one if an address is in it.
    fn section_symbols(&mut self, new: &NewEhFrame<'_>) -> Result<Vec<(usize, u32)>, EmbedError> {
        let mut wanted = Vec::new();
        for (_, address) in new.pointers {
            wanted.push(self.place_of(*address)?.0);
        }
        let mut known = self.known_section_symbols()?;
        wanted.sort_unstable();
        wanted.dedup();
        wanted.retain(|section| known.binary_search_by_key(section, |(s, _)| *s).is_err());
        if wanted.is_empty() {
            return Ok(known);
        }
        let header = self.sections.get(self.symbols);
        let first = header.map_or(0, |header| header.info);
        let count = u32::try_from(wanted.len()).unwrap_or(u32::MAX);
        let has_large_numbers = self.sections.iter().any(|s| s.is(elf::SHT_SYMTAB_SHNDX));
        let mut numbers = wanted.iter().map(|section| in_symbol(*section));
        if numbers.any(|number| number == elf::SHN_XINDEX) && !has_large_numbers {
            let why = "it has too many sections for a symbol table without .symtab_shndx";
            return Err(refused(self.file, None, why));
        }
        self.renumber(first, &wanted)?;
        let symbols: Vec<u8> = wanted.iter().flat_map(|s| section_symbol(*s)).collect();
        self.insert(self.symbols, usize_of(first) * SYMBOL, &symbols)?;
        if let Some(header) = self.sections.get_mut(self.symbols) {
            header.info = first.saturating_add(count);
        }
        known.extend(wanted.into_iter().zip(first..));
        known.sort_unstable();
        Ok(known)
    }

    fn known_section_symbols(&self) -> Result<Vec<(usize, u32)>, EmbedError> {
        let table = SymbolTable::from_section(self.file, self.symbols)?;
        let mut found = Vec::new();
        for (number, index) in (0..).zip(0..table.len()) {
            let symbol = table.get(index);
            let symbol = symbol.filter(|s| (s.kind, s.bind) == (elf::STT_SECTION, elf::STB_LOCAL));
            if let Some(DefiningSection::Section(section)) = symbol.map(|symbol| symbol.section) {
                found.push((section, number));
            }
        }
        found.sort_unstable();
        found.dedup_by_key(|(section, _)| *section);
        Ok(found)
    }

    /// Inserts bytes into a section.
    fn insert(&mut self, index: usize, at: usize, bytes: &[u8]) -> Result<(), EmbedError> {
        let mut content = self.content(index).to_vec();
        if at > content.len() {
            let offset = self.sections.get(index).map_or(0, |header| header.offset);
            let why = "its symbol table has fewer symbols than its header says";
            return Err(refused(self.file, offset, why));
        }
        content.splice(at..at, bytes.iter().copied());
        self.set(index, content);
        Ok(())
    }

    /// Makes room for the symbols of some sections before symbol number `first`, and updates all
    /// symbol numbers.
    fn renumber(&mut self, first: u32, of: &[usize]) -> Result<(), EmbedError> {
        let count = u32::try_from(of.len()).unwrap_or(u32::MAX);
        let shift = |number: u32| {
            if number < first {
                number
            } else {
                number.saturating_add(count)
            }
        };
        for index in 0..self.sections.len() {
            let Some(header) = self.sections.get_mut(index) else {
                break;
            };
            if usize_of(header.link) != self.symbols {
                continue;
            }
            let offset = header.offset;
            match elf::SectionType(header.kind) {
                elf::SHT_GROUP => header.info = shift(header.info),
                elf::SHT_RELA => self.renumber_relocations(index, RELA, shift),
                elf::SHT_REL => self.renumber_relocations(index, REL, shift),
                SHT_LLVM_ADDRSIG => {
                    let renumbered = renumber_list(self.content(index), shift);
                    let why =
                        "its list of symbols whose addresses are taken (.llvm_addrsig) is damaged";
                    let renumbered = renumbered.ok_or_else(|| refused(self.file, offset, why))?;
                    self.set(index, renumbered);
                }
                elf::SHT_SYMTAB_SHNDX => {
                    let numbers = of.iter().map(|section| match in_symbol(*section) {
                        elf::SHN_XINDEX => u32::try_from(*section).unwrap_or(u32::MAX),
                        _ => 0,
                    });
                    let numbers: Vec<u8> = numbers.flat_map(u32::to_le_bytes).collect();
                    self.insert(index, usize_of(first) * 4, &numbers)?;
                }
                SHT_LLVM_CALL_GRAPH_PROFILE => {}
                _ => {
                    let why = "a section of a type that is not known has numbers of symbols";
                    return Err(refused(self.file, offset, why));
                }
            }
        }
        Ok(())
    }

    fn renumber_relocations(&mut self, index: usize, size: usize, shift: impl Fn(u32) -> u32) {
        let mut content = self.content(index).to_vec();
        for entry in content.chunks_exact_mut(size) {
            // The symbol number is the upper half of the second word.
            if let Some(slot) = entry.get_mut(12..16) {
                let number = shift(u32_of(slot));
                slot.copy_from_slice(&number.to_le_bytes());
            }
        }
        self.set(index, content);
    }

    /// The relocations of the new table: those of the kept ranges, and one for each address.
    fn relocated(
        &self,
        index: usize,
        new: &NewEhFrame<'_>,
        symbols: &[(usize, u32)],
    ) -> Result<Vec<u8>, EmbedError> {
        let mut entries: Vec<(u64, [u8; 16])> = Vec::new();
        for entry in self.content(index).chunks_exact(RELA) {
            let (offset, rest) = entry.split_at(8);
            let offset = u64::from_le_bytes(offset.try_into().unwrap_or_default());
            let place = new.kept.partition_point(|(from, _)| from.end <= offset);
            let kept = new.kept.get(place);
            let Some((from, to)) = kept.filter(|(from, _)| from.contains(&offset)) else {
                let why = "a relocation is in what is not kept of .eh_frame, as of an address in an expression";
                let start = self
                    .file
                    .section_header(index)
                    .map_or(0, |header| header.offset);
                return Err(refused(self.file, start, why));
            };
            let rest = rest.try_into().unwrap_or_default();
            entries.push((to + (offset - from.start), rest));
        }
        let kind = eh_frame_distance(self.file).map_or(0, |kind| kind.0);
        for (at, address) in new.pointers {
            let (section, offset) = self.place_of(*address)?;
            let place = symbols.binary_search_by_key(&section, |(s, _)| *s);
            let symbol = place.ok().and_then(|place| symbols.get(place));
            let symbol = symbol.map_or(0, |(_, symbol)| *symbol);
            let info = u64::from(symbol) << 32 | u64::from(kind);
            let mut rest = [0; 16];
            let words = [info, offset].map(u64::to_le_bytes);
            rest.copy_from_slice(words.as_flattened());
            entries.push((*at, rest));
        }
        entries.sort_by_key(|(at, _)| *at);
        let entries = entries.iter();
        let entries = entries.flat_map(|(at, rest)| at.to_le_bytes().into_iter().chain(*rest));
        Ok(entries.collect())
    }

    fn write(mut self) -> Vec<u8> {
        let encoding = Encoding::from_file(self.file);
        let size = usize::try_from(encoding.header_size()).unwrap_or(0);
        let mut out = self.file.bytes().get(..size).unwrap_or_default().to_vec();
        let mut order: Vec<usize> = (1..self.sections.len()).collect();
        // New ones have no offset yet.
        let old = self.file.section_headers().len();
        let place = |index: &usize| {
            let header = self.sections.get(*index);
            (*index >= old, header.map_or(0, |header| header.offset))
        };
        order.sort_by_key(place);
        for index in order {
            let content = self.contents.get(index).map_or(&[][..], |content| content);
            let Some(header) = self.sections.get_mut(index) else {
                continue;
            };
            align(&mut out, header.align.clamp(1, MAX_SECTION_ALIGN));
            header.offset = out.len() as u64;
            out.extend(content);
        }
        align(&mut out, 8);
        let table = out.len() as u64;
        let all = self.sections.len() as u64;
        let count = u16::try_from(all).ok();
        let count = count.filter(|count| *count < elf::SHN_LORESERVE);
        if let (None, Some(first)) = (count, self.sections.first_mut()) {
            // There are too many sections for the header: the first section header has their number
            // (ELF, "Sections").
            first.size = all;
        }
        let headers = self.sections.iter();
        out.extend(headers.flat_map(|header| encoding.section(header)));
        let fields = encoding.header_fields();
        let count = encoding.number(count.unwrap_or(0).into(), 2);
        overwrite(&mut out, fields.section_offset, &encoding.word(table));
        overwrite(&mut out, fields.section_count, &count);
        out
    }
}

fn section_symbol(section: usize) -> [u8; SYMBOL] {
    let mut symbol = [0; SYMBOL]; // unnamed, local, offset 0, no size
    let [low, high] = in_symbol(section).0.to_le_bytes();
    let [_, _, _, _, info, _, index_low, index_high, ..] = &mut symbol;
    (*info, *index_low, *index_high) = (elf::STT_SECTION.0, low, high);
    symbol
}

/// A section's number in a symbol.
fn in_symbol(section: usize) -> elf::SymbolSection {
    match u16::try_from(section) {
        Ok(number) if number < elf::SHN_LORESERVE => elf::SymbolSection(number),
        _ => elf::SHN_XINDEX,
    }
}

/// A list of numbers in LEB128 (LLVM, "Extensions", `SHT_LLVM_ADDRSIG`).
fn renumber_list(mut list: &[u8], shift: impl Fn(u32) -> u32) -> Option<Vec<u8>> {
    let mut renumbered = Vec::new();
    while !list.is_empty() {
        let number = u32::try_from(unsigned(&mut list)?).ok()?;
        put_unsigned(&mut renumbered, shift(number).into());
    }
    Some(renumbered)
}

/// The symbols with significant addresses (LLVM, "Extensions").
const SHT_LLVM_ADDRSIG: elf::SectionType = elf::SectionType(0x6fff_4c03);
/// Weights of calls. Its relocations name the symbols (LLVM, "Extensions").
const SHT_LLVM_CALL_GRAPH_PROFILE: elf::SectionType = elf::SectionType(0x6fff_4c09);

const EMPTY: Shdr = Shdr {
    name: 0,
    kind: 0,
    flags: 0,
    addr: 0,
    offset: 0,
    size: 0,
    link: 0,
    info: 0,
    align: 1,
    entry_size: 0,
};

fn usize_of(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn u32_of(bytes: &[u8]) -> u32 {
    bytes.try_into().map_or(0, u32::from_le_bytes)
}

fn align(out: &mut Vec<u8>, align: u64) {
    let align = usize::try_from(align).unwrap_or(1);
    out.resize(out.len().next_multiple_of(align), 0);
}
