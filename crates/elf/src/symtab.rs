//! Symbol table entries, as in the file.

use std::borrow::Cow;
use std::collections::HashSet;

use object::elf::{self, Sym32, Sym64};
use object::read::elf::Sym;
use object::{Endianness, pod};
use unspool_rows::Vaddr;
use unspool_rows::arch::AddressSize;

use crate::elf::{ElfFile, MAX_NAME_BYTES, string_at};
use crate::error::ModuleError;
use crate::header::Shdr;

/// One symbol table entry, with its fields widened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawSymbol {
    pub(crate) name: u32,
    pub(crate) kind: elf::SymbolType,
    pub(crate) bind: elf::SymbolBind,
    pub(crate) value: u64,
    pub(crate) size: u64,
    pub(crate) section: DefiningSection,
}

impl RawSymbol {
    /// Whether it is defined in that section, at its address or up to its end. Linkers attribute
    /// symbols such as `__ehdr_start` to sections that they are not in.
    pub(crate) fn is_within(&self, index: usize, section: &Shdr) -> bool {
        let delta = self.value.checked_sub(section.addr);
        self.section == DefiningSection::Section(index)
            && delta.is_some_and(|delta| delta <= section.size)
    }
}

/// The defining section of a symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DefiningSection {
    /// Another file, or common storage.
    Elsewhere,
    /// None: its value is not an address of this file's sections.
    Absolute,
    /// The section of this index.
    Section(usize),
}

/// A symbol table, its strings, and its extended section indices.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SymbolTable<'a> {
    data: &'a [u8],
    strings: &'a [u8],
    extended: &'a [u8],
    address_size: AddressSize,
    endian: Endianness,
}

impl<'a> SymbolTable<'a> {
    /// A table without section headers.
    pub(crate) fn without_headers(
        file: &ElfFile,
        data: &'a [u8],
        strings: &'a [u8],
    ) -> SymbolTable<'a> {
        SymbolTable {
            data,
            strings,
            extended: &[],
            address_size: file.word(),
            endian: if file.is_little_endian() {
                Endianness::Little
            } else {
                Endianness::Big
            },
        }
    }

    /// The table in the section of that index.
    pub(crate) fn from_section(
        file: &'a ElfFile,
        index: usize,
    ) -> Result<SymbolTable<'a>, ModuleError> {
        let data = file.table(index, &[elf::SHT_SYMTAB, elf::SHT_DYNSYM])?;
        let link = file.section_header(index).map_or(0, |header| header.link);
        let strings = usize::try_from(link).unwrap_or(usize::MAX);
        let strings = file.table(strings, &[elf::SHT_STRTAB])?;
        let extended = match extended_indices(file, index) {
            Some(extended) => file.table(extended, &[elf::SHT_SYMTAB_SHNDX])?,
            None => &[],
        };
        Ok(SymbolTable {
            extended,
            ..SymbolTable::without_headers(file, data, strings)
        })
    }

    /// The number of entries.
    pub(crate) fn len(&self) -> usize {
        self.data.len() / self.entry_size()
    }

    pub(crate) fn entry_size(&self) -> usize {
        match self.address_size {
            AddressSize::W32 => size_of::<Sym32<Endianness>>(),
            AddressSize::W64 => size_of::<Sym64<Endianness>>(),
        }
    }

    /// The offset of the value in an entry, in bytes.
    pub(crate) fn value_offset(&self) -> u64 {
        match self.address_size {
            AddressSize::W32 => 4,
            AddressSize::W64 => 8,
        }
    }

    /// The entry of that index.
    pub(crate) fn get(&self, index: usize) -> Option<RawSymbol> {
        let data = self.data.get(index.checked_mul(self.entry_size())?..)?;
        match self.address_size {
            AddressSize::W32 => {
                let (symbol, _) = pod::from_bytes::<Sym32<Endianness>>(data).ok()?;
                self.widen(index, symbol)
            }
            AddressSize::W64 => {
                let (symbol, _) = pod::from_bytes::<Sym64<Endianness>>(data).ok()?;
                self.widen(index, symbol)
            }
        }
    }

    /// The name of a symbol, cut after `most` bytes.
    pub(crate) fn name(&self, symbol: &RawSymbol, most: usize) -> &'a [u8] {
        string_at(self.strings, symbol.name, most).unwrap_or_default()
    }

    fn widen<S: Sym<Endian = Endianness>>(&self, index: usize, symbol: &S) -> Option<RawSymbol> {
        Some(RawSymbol {
            name: symbol.st_name(self.endian),
            kind: symbol.st_type(),
            bind: symbol.st_bind(),
            value: symbol.st_value(self.endian).into(),
            size: symbol.st_size(self.endian).into(),
            section: self.place(index, symbol.st_shndx(self.endian))?,
        })
    }

    fn place(&self, index: usize, section: elf::SymbolSection) -> Option<DefiningSection> {
        Some(match section {
            elf::SHN_UNDEF | elf::SHN_COMMON => DefiningSection::Elsewhere,
            elf::SHN_ABS => DefiningSection::Absolute,
            elf::SHN_XINDEX => {
                let bytes = self.extended.get(index.checked_mul(4)?..)?.first_chunk()?;
                let section = match self.endian {
                    Endianness::Little => u32::from_le_bytes(*bytes),
                    Endianness::Big => u32::from_be_bytes(*bytes),
                };
                DefiningSection::Section(usize::try_from(section).ok()?)
            }
            other => match other.index() {
                Some(section) => DefiningSection::Section(usize::from(section)),
                None => DefiningSection::Absolute,
            },
        })
    }
}

/// The table of section indices that do not fit into 16 bits. Assemblers write it behind its symbol
/// table, so it is looked for there first: this is called for each section with relocations.
fn extended_indices(file: &ElfFile, symbols: usize) -> Option<usize> {
    let sections = file.section_headers();
    if sections.len() < usize::from(elf::SHN_LORESERVE) {
        return None;
    }
    let is_of = |index: &usize| {
        sections.get(*index).is_some_and(|header| {
            header.is(elf::SHT_SYMTAB_SHNDX) && usize::try_from(header.link) == Ok(symbols)
        })
    };
    (symbols..sections.len()).chain(0..symbols).find(is_of)
}

/// A symbol that a linked file refers to, and that nobody defines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnresolvedSymbol<'f> {
    /// Its name.
    pub name: Cow<'f, str>,
    /// Whether code works without it (`STB_WEAK`).
    pub is_weak: bool,
    /// Whether it is a variable of each thread (`STT_TLS`).
    pub is_thread_local: bool,
}

impl ElfFile {
    /// The symbols that a linked file refers to, that it does not define, and that the dynamic
    /// linker is not asked for. Linkers keep them in `.symtab` together with relocations
    /// (`--emit-relocs`). Allocates the result.
    ///
    /// # Errors
    ///
    /// [`ModuleError`] if a symbol table cannot be read.
    pub fn unresolved_symbols(&self) -> Result<Vec<UnresolvedSymbol<'_>>, ModuleError> {
        let undefined = |kind| -> Result<Vec<(&[u8], RawSymbol)>, ModuleError> {
            let mut found = Vec::new();
            for index in self.indices(|_, header| header.is(kind)) {
                let table = SymbolTable::from_section(self, index)?;
                let symbols = (0..table.len()).filter_map(|index| table.get(index));
                let undefined = symbols.filter(|it| it.section == DefiningSection::Elsewhere);
                let named = undefined.map(|it| (table.name(&it, MAX_NAME_BYTES), it));
                found.extend(named.filter(|(name, _)| !name.is_empty()));
            }
            Ok(found)
        };
        let requested = undefined(elf::SHT_DYNSYM)?.into_iter();
        let requested: HashSet<&[u8]> = requested.map(|(name, _)| name).collect();
        let unresolved = undefined(elf::SHT_SYMTAB)?.into_iter().filter(|(name, _)| {
            let without_version = name.split(|byte| *byte == b'@').next();
            !requested.contains(without_version.unwrap_or_default())
        });
        let unresolved = unresolved.map(|(name, symbol)| UnresolvedSymbol {
            name: String::from_utf8_lossy(name),
            is_weak: symbol.bind == elf::STB_WEAK,
            is_thread_local: symbol.kind == elf::STT_TLS,
        });
        Ok(unresolved.collect())
    }

    /// The link-time address of the first variable that a symbol table names so. Each call reads
    /// the tables.
    #[must_use]
    pub fn variable(&self, name: &str) -> Option<Vaddr> {
        let mut tables = self.indices(|_, header| {
            let kinds = [elf::SHT_SYMTAB, elf::SHT_DYNSYM];
            kinds.iter().any(|kind| header.is(*kind))
        });
        tables.find_map(|index| {
            let table = SymbolTable::from_section(self, index).ok()?;
            let symbols = (0..table.len()).filter_map(|index| table.get(index));
            let mut variables = symbols.filter(|symbol| symbol.kind == elf::STT_OBJECT);
            let found = variables.find(|symbol| {
                matches!(symbol.section, DefiningSection::Section(_))
                    && table.name(symbol, name.len() + 1) == name.as_bytes()
            })?;
            Some(Vaddr(found.value))
        })
    }

    /// The bytes of a section, if it has one of these types.
    fn table(&self, index: usize, kinds: &[elf::SectionType]) -> Result<&[u8], ModuleError> {
        match self.section_header(index) {
            Some(header) if kinds.iter().any(|kind| header.is(*kind)) => {
                Ok(self.section_contents(index)?.0)
            }
            other => Err(self.malformed(
                "a section header",
                other.map_or(0, |header| header.offset),
                index as u64,
                "another section takes the section of this index for a symbol or string table",
            )),
        }
    }
}
