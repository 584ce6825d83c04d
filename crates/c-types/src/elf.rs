//! What CTF leaves to the ELF file that it is in: strings, and the order of symbols.

use std::borrow::Cow;

use crate::bytes::{Endian, size};

/// The string tables of the ELF file; empty where it has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ElfStrings<'a> {
    /// `.strtab`.
    pub strtab: &'a [u8],
    /// `.dynstr`.
    pub dynstr: &'a [u8],
}

/// What an ELF file says for CTF.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ElfContext<'a> {
    /// Its string tables.
    pub strings: ElfStrings<'a>,
    /// `.symtab`, as it is in the file.
    pub symtab: &'a [u8],
    /// `.dynsym`, as it is in the file.
    pub dynsym: &'a [u8],
    /// The order of the bytes of numbers in it.
    pub endian: Endian,
    /// Whether addresses have eight bytes, not four.
    pub is_64: bool,
}

/// What a symbol is the name of, as far as types go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SymbolKind {
    /// A function.
    Function,
    /// Data.
    Object,
}

/// A symbol for which a dictionary has room: a defined function, or data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElfSymbol<'a> {
    /// What it names.
    pub kind: SymbolKind,
    /// Its name.
    pub name: Cow<'a, str>,
    /// Whether it can be had from other files: it is not local.
    pub is_global: bool,
    /// Whether it is data of which each thread has its own.
    pub is_thread_local: bool,
    /// Whether it is a function that is chosen when the program starts: the code at its address chooses.
    pub is_ifunc: bool,
    /// What it names.
    pub extent: SymbolExtent,
}

/// The bytes that a symbol is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SymbolExtent {
    /// The number of the section that they are in.
    pub section: u16,
    /// The address, in object files in the section, of data of which each thread has its own among that.
    pub address: u64,
    /// How many there are.
    pub size: u64,
}

const STT_OBJECT: u8 = 1;
const STT_FUNC: u8 = 2;
const STT_TLS: u8 = 6;
const STT_GNU_IFUNC: u8 = 10;

impl<'a> ElfContext<'a> {
    /// The symbols that symbol types without an index are of, in their order: not those of data of which each thread has its own, and not
    /// those of functions that are chosen when the program starts.
    pub fn typed_symbols(self, is_dynamic: bool) -> impl Iterator<Item = ElfSymbol<'a>> {
        let symbols = self.entries(is_dynamic);
        symbols.filter_map(|(kind, symbol)| matches!(kind, STT_OBJECT | STT_FUNC).then_some(symbol))
    }

    /// The symbols of all functions and data that are defined, in their order.
    pub fn symbols(self, is_dynamic: bool) -> impl Iterator<Item = ElfSymbol<'a>> {
        self.entries(is_dynamic).map(|(_, symbol)| symbol)
    }

    /// The symbols of functions and data, each with its ELF type.
    fn entries(self, is_dynamic: bool) -> impl Iterator<Item = (u8, ElfSymbol<'a>)> {
        let (table, strings) = match is_dynamic {
            true => (self.dynsym, self.strings.dynstr),
            false => (self.symtab, self.strings.strtab),
        };
        let entry = if self.is_64 { 24 } else { 16 };
        table
            .chunks_exact(entry)
            .filter_map(move |bytes| self.symbol(bytes, strings))
    }

    /// The symbol of an entry, if it is a definition of a function or of data, and its ELF type.
    fn symbol(self, bytes: &[u8], strings: &'a [u8]) -> Option<(u8, ElfSymbol<'a>)> {
        const SHN_UNDEF: u16 = 0;
        const SHN_ABS: u16 = 0xfff1;
        const STB_LOCAL: u8 = 0;
        let word = |at| Some(u64::from(self.endian.u32(bytes, at)?));
        let long = |at: usize| match self.endian {
            Endian::Little => Some(word(at)? | word(at + 4)? << 32),
            Endian::Big => Some(word(at)? << 32 | word(at + 4)?),
        };
        let (info, section, address, size_of) = match self.is_64 {
            true => (4, 6, long(8)?, long(16)?),
            false => (12, 14, word(4)?, word(8)?),
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
