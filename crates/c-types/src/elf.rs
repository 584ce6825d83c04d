//! Inputs of CTF from its ELF file: strings, and the order of symbols.

use std::borrow::Cow;

use crate::bytes::{Endian, size};

/// The string tables of the ELF file; empty if it has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ElfStrings<'a> {
    /// `.strtab`.
    pub strtab: &'a [u8],
    /// `.dynstr`.
    pub dynstr: &'a [u8],
}

/// The ELF file's tables for CTF.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ElfContext<'a> {
    /// Its string tables.
    pub strings: ElfStrings<'a>,
    /// `.symtab`, as in the file.
    pub symtab: &'a [u8],
    /// `.dynsym`, as in the file.
    pub dynsym: &'a [u8],
    /// `.gnu.version`, as in the file: the version of each symbol in `.dynsym`.
    pub symbol_versions: &'a [u8],
    /// `.gnu.version_d`, as in the file: the versions that the file defines.
    pub version_definitions: &'a [u8],
    /// The byte order of numbers in it.
    pub endian: Endian,
    /// Whether addresses have eight bytes, not four.
    pub is_64: bool,
}

/// The kind of a symbol with a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SymbolKind {
    /// A function.
    Function,
    /// Data.
    Object,
}

/// A symbol with an entry in a dictionary: a defined function, or data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElfSymbol<'a> {
    /// What it names.
    pub kind: SymbolKind,
    /// Its index in the symbol table.
    pub index: usize,
    /// Its name.
    pub name: Cow<'a, str>,
    /// Whether other files can use it: it is not local.
    pub is_global: bool,
    /// Whether it is thread-local data.
    pub is_thread_local: bool,
    /// Whether it is an ifunc: the code at its address chooses the function when the program
    /// starts.
    pub is_ifunc: bool,
    /// Its bytes.
    pub extent: SymbolExtent,
}

/// The bytes of a symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SymbolExtent {
    /// The number of their section.
    pub section: u16,
    /// The address; in object files the offset in the section; for thread-local data the offset in
    /// its block.
    pub address: u64,
    /// The number of bytes.
    pub size: u64,
}

const STT_OBJECT: u8 = 1;
const STT_FUNC: u8 = 2;
const STT_TLS: u8 = 6;
const STT_GNU_IFUNC: u8 = 10;

/// The maximum ratio of the size of all names to that of their string table.
const MAX_SHARED_NAMES: usize = 16;

/// The beginning of a label that has the checksum of the symbols' order.
pub(crate) const ORDER_LABEL: &str = "symbols-";

impl<'a> ElfContext<'a> {
    /// For CTF without an ELF file: no tables, and addresses of eight bytes.
    pub const BARE_64: ElfContext<'static> = ElfContext {
        strings: ElfStrings {
            strtab: &[],
            dynstr: &[],
        },
        symtab: &[],
        dynsym: &[],
        symbol_versions: &[],
        version_definitions: &[],
        endian: Endian::Little,
        is_64: true,
    };

    /// The label of dictionaries that have symbol types in the order of the file's symbols: a
    /// checksum (CRC-32) of their kinds and names.
    pub(crate) fn symbol_order_label(self, is_dynamic: bool) -> String {
        let mut checksum = libdeflater::Crc::new();
        for symbol in self.typed_symbols(is_dynamic) {
            checksum.update(&[symbol.kind as u8]);
            checksum.update(symbol.name.as_bytes());
            checksum.update(&[0]);
        }
        format!("{ORDER_LABEL}{:08x}", checksum.sum())
    }

    /// The symbols of unindexed symbol types, in their order: without thread-local data and ifuncs.
    pub(crate) fn typed_symbols(self, is_dynamic: bool) -> impl Iterator<Item = ElfSymbol<'a>> {
        let symbols = self.entries(is_dynamic);
        symbols.filter_map(|(kind, symbol)| matches!(kind, STT_OBJECT | STT_FUNC).then_some(symbol))
    }

    /// The symbols of all defined functions and data, in their order.
    pub fn symbols(self, is_dynamic: bool) -> impl Iterator<Item = ElfSymbol<'a>> {
        self.entries(is_dynamic).map(|(_, symbol)| symbol)
    }

    /// The symbols of functions and data, each with its ELF type.
    fn entries(self, is_dynamic: bool) -> impl Iterator<Item = (u8, ElfSymbol<'a>)> {
        let (table, strings) = if is_dynamic {
            (self.dynsym, self.strings.dynstr)
        } else {
            (self.symtab, self.strings.strtab)
        };
        let entry = if self.is_64 { 24 } else { 16 };
        // Linkers let names share their ends only, so all are not much longer than the table.
        let mut left = strings.len().saturating_mul(MAX_SHARED_NAMES);
        let entries = table.chunks_exact(entry).enumerate();
        entries.filter_map(move |(index, bytes)| {
            let found = self.symbol(index, bytes, strings)?;
            left = left.checked_sub(found.1.name.len())?;
            Some(found)
        })
    }

    /// The version's number of a symbol in `.dynsym`, and whether the symbol is only for programs
    /// that ask for that version (LSB 5.0, "Symbol Versioning"). `None` if there is none.
    pub(crate) fn symbol_version(self, index: usize) -> Option<(u16, bool)> {
        const HIDDEN: u16 = 1 << 15;
        let version = self
            .endian
            .u16(self.symbol_versions, index.checked_mul(2)?)?;
        Some((version & !HIDDEN, version & HIDDEN != 0))
    }

    /// The versions that the file defines, by their numbers, without that of its own name.
    pub(crate) fn version_definitions(self) -> impl Iterator<Item = (u16, String)> {
        const BASE: u16 = 1;
        /// The size of `Elf64_Verdef`.
        const DEFINITION_BYTES: usize = 20;
        /// The limit of a version's name.
        const MAX_NAME_BYTES: usize = 1024;
        let bytes = self.version_definitions;
        let mut at = Some(0_usize);
        let definitions = std::iter::from_fn(move || {
            let entry = bytes.get(at?..)?;
            let half = |at| self.endian.u16(entry, at);
            let word = |at| Some(size(u64::from(self.endian.u32(entry, at)?)));
            let (flags, number) = (half(2)?, half(4)?);
            let name = self.endian.u32(entry, word(12)?)?;
            let next = word(16)?;
            // Entries do not overlap.
            at = at?.checked_add(next).filter(|_| next >= DEFINITION_BYTES);
            Some((flags, number, name))
        });
        definitions
            .filter(|(flags, ..)| flags & BASE == 0)
            .filter_map(move |(_, number, name)| {
                let name = self.strings.dynstr.get(size(u64::from(name))..)?;
                let name = name.get(..MAX_NAME_BYTES).unwrap_or(name);
                let name = name.split(|byte| *byte == 0).next()?;
                Some((number, String::from_utf8_lossy(name).into_owned()))
            })
    }

    /// The symbol of an entry, if it is a definition of a function or of data, and its ELF type.
    fn symbol(self, index: usize, bytes: &[u8], strings: &'a [u8]) -> Option<(u8, ElfSymbol<'a>)> {
        const SHN_UNDEF: u16 = 0;
        const SHN_ABS: u16 = 0xfff1;
        const STB_LOCAL: u8 = 0;
        let word = |at| Some(u64::from(self.endian.u32(bytes, at)?));
        let long = |at: usize| match self.endian {
            Endian::Little => Some(word(at)? | word(at + 4)? << 32),
            Endian::Big => Some(word(at)? << 32 | word(at + 4)?),
        };
        let (info, section, address, size_of) = if self.is_64 {
            (4, 6, long(8)?, long(16)?)
        } else {
            (12, 14, word(4)?, word(8)?)
        };
        let info = bytes.get(info)?;
        let (elf_kind, binding) = (info & 0xf, info >> 4);
        let kind = match elf_kind {
            STT_OBJECT | STT_TLS => SymbolKind::Object,
            STT_FUNC | STT_GNU_IFUNC => SymbolKind::Function,
            _ => return None,
        };
        let section = self.endian.u16(bytes, section)?;
        let name = strings.get(size(u64::from(self.endian.u32(bytes, 0)?))..)?;
        let name = name.split(|byte| *byte == 0).next()?;
        let is_left_out = name.is_empty()
            || section == SHN_UNDEF
            || name == b"_START_"
            || name == b"_END_"
            || (kind == SymbolKind::Object && section == SHN_ABS && address == 0);
        let symbol = ElfSymbol {
            kind,
            index,
            name: String::from_utf8_lossy(name),
            is_global: binding != STB_LOCAL,
            is_thread_local: elf_kind == STT_TLS,
            is_ifunc: elf_kind == STT_GNU_IFUNC,
            extent: SymbolExtent {
                section,
                address,
                size: size_of,
            },
        };
        (!is_left_out).then_some((elf_kind, symbol))
    }

    /// The size of a pointer in bytes.
    #[must_use]
    pub fn pointer_size(self) -> u64 {
        if self.is_64 { 8 } else { 4 }
    }
}
