//! The dynamic section: the dynamic loader's input, and the only index of a file without section
//! headers.

use std::borrow::Cow;

use object::elf;
use unspool_rows::Vaddr;

use crate::elf::{ElfFile, slice};
use crate::symtab::SymbolTable;

/// The dynamic symbol table, found as the dynamic loader finds it.
pub(crate) struct DynamicSymbols<'a> {
    pub(crate) symbols: &'a [u8],
    pub(crate) strings: Vaddr,
}

impl ElfFile {
    /// The value of the first entry with that tag, of `PT_DYNAMIC`.
    pub(crate) fn dynamic_value(&self, tag: elf::DynamicTag) -> Option<u64> {
        let header = self.segment_of_kind(elf::PT_DYNAMIC)?;
        let data = self.section_of_segment(header).ok()??.data;
        let size = usize::from(self.word().bytes());
        data.chunks_exact(2 * size)
            .filter_map(|entry| entry.split_at_checked(size))
            .map(|(tag, value)| (self.load(tag), self.load(value)))
            .take_while(|(found, _)| *found != 0)
            .find(|(found, _)| i64::try_from(*found) == Ok(tag.0))
            .map(|(_, value)| value)
    }

    /// The name by which other files ask the dynamic loader for this shared object (`DT_SONAME`);
    /// `None` if it has none.
    #[must_use]
    pub fn soname(&self) -> Option<Cow<'_, str>> {
        let strings = self.rest_at(Vaddr(self.dynamic_value(elf::DT_STRTAB)?))?;
        let start = usize::try_from(self.dynamic_value(elf::DT_SONAME)?).ok()?;
        let name = strings.get(start..)?.split(|byte| *byte == 0).next()?;
        Some(String::from_utf8_lossy(name))
    }

    /// The dynamic symbols. Only the hash table has their number.
    pub(crate) fn dynamic_symbols(&self) -> Option<DynamicSymbols<'_>> {
        let symbols = self.rest_at(Vaddr(self.dynamic_value(elf::DT_SYMTAB)?))?;
        let strings = Vaddr(self.dynamic_value(elf::DT_STRTAB)?);
        let count = self
            .symbols_in_hash()
            .or_else(|| self.symbols_in_gnu_hash())?;
        let entry = SymbolTable::without_headers(self, symbols, &[]).entry_size() as u64;
        let size = count.checked_mul(entry)?.min(symbols.len() as u64);
        Some(DynamicSymbols {
            symbols: slice(symbols, 0, size)?,
            strings,
        })
    }

    /// `DT_HASH`: the number of chain entries is that of the symbols.
    fn symbols_in_hash(&self) -> Option<u64> {
        let table = self.rest_at(Vaddr(self.dynamic_value(elf::DT_HASH)?))?;
        self.word_at(table, 1)
    }

    /// `DT_GNU_HASH`: the chain of the last bucket ends with the last symbol.
    fn symbols_in_gnu_hash(&self) -> Option<u64> {
        let table = self.rest_at(Vaddr(self.dynamic_value(elf::DT_GNU_HASH)?))?;
        let (buckets, first) = (self.word_at(table, 0)?, self.word_at(table, 1)?);
        let filter_words = self.word_at(table, 2)? * u64::from(self.word().bytes() / 4);
        let start = filter_words + 4;
        let bucket = |index| self.word_at(table, start + index);
        let last = (0..buckets).map_while(bucket).max()?;
        let chains = start + buckets;
        let links = last.checked_sub(first)?..;
        let mut links = links.map_while(|link| self.word_at(table, chains + link));
        let length = links.position(|link| link & 1 == 1)?;
        Some(last + length as u64 + 1)
    }

    /// The 32-bit word at that index.
    fn word_at(&self, table: &[u8], index: u64) -> Option<u64> {
        slice(table, index.checked_mul(4)?, 4).map(|bytes| self.load(bytes))
    }

    /// A number of up to 8 bytes in the file's byte order.
    fn load(&self, bytes: &[u8]) -> u64 {
        crate::elf::load(bytes, self.is_little_endian())
    }
}
