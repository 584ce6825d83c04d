//! Relocations of relocatable files, applied against the addresses that its sections were laid out
//! at: absolute and pc-relative kinds, as unwind tables, debug information and direct calls use
//! them.

use std::borrow::Cow;
use std::collections::HashMap;

use object::elf;
use object::read::elf::{FileHeader, Rel, Rela};
use object::{Endianness, pod};
use unspool_rows::Vaddr;
use unspool_rows::arch::AddressSize;

use crate::arch::{self, RelocationHowto};
use crate::elf::{ElfFile, MAX_NAME_BYTES, load};
use crate::error::ModuleError;
use crate::header::Shdr;
use crate::symtab::{DefiningSection, SymbolTable};

/// The distance between undefined symbols in bytes.
const EXTERNAL_STEP: u64 = 16;

/// Why one relocation was not applied: its bytes are as in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RelocationError {
    /// An unknown relocation type, or one that needs a table which only a linker makes.
    #[error("relocation at section offset {offset:#x}: type {kind} is not supported")]
    Unsupported {
        /// The offset in the section, in bytes.
        offset: u64,
        /// The relocation type (`ELF64_R_TYPE`).
        kind: u32,
    },
    /// The symbol index is invalid, or the symbol's section has no address.
    #[error("relocation at section offset {offset:#x}: symbol {symbol} has no address")]
    BadSymbol {
        /// The offset in the section, in bytes.
        offset: u64,
        /// The index in the symbol table.
        symbol: u32,
    },
    /// The relocated field is not inside the section.
    #[error("relocation at section offset {offset:#x}: the section has only {size:#x} bytes")]
    OutOfSection {
        /// The offset in the section, in bytes.
        offset: u64,
        /// The size of the section in bytes.
        size: u64,
    },
    /// The value does not fit into the field.
    #[error("relocation at section offset {offset:#x}: {value:#x} does not fit")]
    Overflow {
        /// The offset in the section, in bytes.
        offset: u64,
        /// The value.
        value: u64,
    },
}

/// One relocation entry, with its fields widened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RelocationEntry {
    /// Offset of the field: in its section, or in a linked file its address.
    pub(crate) offset: u64,
    pub(crate) symbol: u32,
    pub(crate) kind: u32,
    /// `None`: the addend is in the field.
    pub(crate) addend: Option<i64>,
}

/// The relocation sections of each section; empty unless the file is relocatable.
fn relocation_sections(file: &ElfFile) -> &HashMap<u32, Vec<u32>> {
    file.relocation_sections.get_or_init(|| {
        let mut map: HashMap<u32, Vec<u32>> = HashMap::new();
        if file.is_relocatable() {
            for (index, header) in (0..).zip(file.section_headers()) {
                if header.is(elf::SHT_REL) || header.is(elf::SHT_RELA) {
                    map.entry(header.info).or_default().push(index);
                }
            }
        }
        map
    })
}

fn sections_for(file: &ElfFile, index: usize) -> &[u32] {
    u32::try_from(index)
        .ok()
        .and_then(|index| relocation_sections(file).get(&index))
        .map_or(&[], Vec::as_slice)
}

/// Whether the section has relocations to apply. The tables that relocating itself reads never have
/// any, whatever the file says: reading one must not need another.
pub(crate) fn concerns(file: &ElfFile, index: usize) -> bool {
    let is_table = |header: &Shdr| {
        [
            elf::SHT_SYMTAB,
            elf::SHT_DYNSYM,
            elf::SHT_STRTAB,
            elf::SHT_SYMTAB_SHNDX,
        ]
        .into_iter()
        .chain([elf::SHT_REL, elf::SHT_RELA])
        .any(|kind| header.is(kind))
    };
    file.is_relocatable()
        && !file.section_header(index).is_none_or(is_table)
        && !sections_for(file, index).is_empty()
}

/// Applies all relocations of a section to its bytes; returns those that could not be applied.
pub(crate) fn apply(
    file: &ElfFile,
    index: usize,
    data: &mut [u8],
) -> Result<Vec<RelocationError>, ModuleError> {
    let address = file.section_header(index).map_or(0, |header| header.addr);
    let mut problems = Vec::new();
    for relocations in sections_for(file, index) {
        let relocations = usize::try_from(*relocations).unwrap_or(usize::MAX);
        let Some(header) = file.section_header(relocations) else {
            continue;
        };
        let symbols = usize::try_from(header.link).unwrap_or(usize::MAX);
        let symbols = SymbolTable::from_section(file, symbols)?;
        let mut target = RelocationTarget {
            file,
            symbols,
            address,
            data,
        };
        for entry in entries(file, relocations, header)? {
            problems.extend(target.relocate(&entry).err());
        }
    }
    Ok(problems)
}

/// The entries of a relocation section.
pub(crate) fn entries(
    file: &ElfFile,
    index: usize,
    header: &Shdr,
) -> Result<Vec<RelocationEntry>, ModuleError> {
    let data = file.section_contents(index)?.0;
    let endian = if file.is_little_endian() {
        Endianness::Little
    } else {
        Endianness::Big
    };
    let explicit = header.is(elf::SHT_RELA);
    Ok(match file.word() {
        AddressSize::W32 => widen::<elf::FileHeader32<Endianness>>(data, explicit, endian),
        AddressSize::W64 => widen::<elf::FileHeader64<Endianness>>(data, explicit, endian),
    })
}

fn widen<E: FileHeader<Endian = Endianness>>(
    data: &[u8],
    explicit: bool,
    endian: Endianness,
) -> Vec<RelocationEntry> {
    let with_addend = |r: &E::Rela| RelocationEntry {
        offset: r.r_offset(endian).into(),
        symbol: r.r_sym(endian, false),
        kind: r.r_type(endian, false).0,
        addend: Some(r.r_addend(endian).into()),
    };
    let without = |r: &E::Rel| RelocationEntry {
        offset: r.r_offset(endian).into(),
        symbol: r.r_sym(endian),
        kind: r.r_type(endian).0,
        addend: None,
    };
    if explicit {
        let count = data.len() / size_of::<E::Rela>();
        let all = pod::slice_from_bytes::<E::Rela>(data, count);
        all.map(|(all, _)| all.iter().map(with_addend).collect())
            .unwrap_or_default()
    } else {
        let count = data.len() / size_of::<E::Rel>();
        let all = pod::slice_from_bytes::<E::Rel>(data, count);
        all.map(|(all, _)| all.iter().map(without).collect())
            .unwrap_or_default()
    }
}

/// The section being relocated.
struct RelocationTarget<'a> {
    file: &'a ElfFile,
    symbols: SymbolTable<'a>,
    address: u64,
    data: &'a mut [u8],
}

impl RelocationTarget<'_> {
    fn relocate(&mut self, entry: &RelocationEntry) -> Result<(), RelocationError> {
        let offset = entry.offset;
        let arch = arch::format(self.file.abi().arch);
        let kind = elf::RelocationType(entry.kind);
        if kind.0 == 0 || arch.no_relocation == Some(kind) {
            return Ok(());
        }
        let field = usize::try_from(offset).unwrap_or(usize::MAX);
        let howto = if (arch.relax)(kind, self.data, field) {
            Some(RelocationHowto::pc_relative(4))
        } else {
            arch.howto(kind)
        };
        let kind = howto.ok_or(RelocationError::Unsupported {
            offset,
            kind: entry.kind,
        })?;
        let symbol = self
            .symbol(entry.symbol)
            .ok_or(RelocationError::BadSymbol {
                offset,
                symbol: entry.symbol,
            })?;
        let out = RelocationError::OutOfSection {
            offset,
            size: self.data.len() as u64,
        };
        let little = self.file.is_little_endian();
        let start = usize::try_from(offset).map_err(|_| out)?;
        let place = start
            .checked_add(kind.bytes)
            .and_then(|end| self.data.get_mut(start..end));
        let place = place.ok_or(out)?;

        let old = load(place, little);
        let addend = entry.addend.unwrap_or_else(|| kind.implicit_addend(old));
        let origin = if kind.relative {
            self.address.wrapping_add(offset)
        } else {
            0
        };
        let value = symbol.wrapping_add_signed(addend).wrapping_sub(origin);
        let new = kind
            .insert(old, value)
            .ok_or(RelocationError::Overflow { offset, value })?;
        store(place, new, little);
        Ok(())
    }

    /// The address of a symbol; index 0 means no symbol.
    fn symbol(&self, index: u32) -> Option<u64> {
        if index == 0 {
            return Some(0);
        }
        let symbol = self.symbols.get(usize::try_from(index).ok()?)?;
        match symbol.section {
            DefiningSection::Absolute => Some(symbol.value),
            DefiningSection::Section(section) => Some(
                self.file
                    .section_header(section)?
                    .addr
                    .wrapping_add(symbol.value),
            ),
            DefiningSection::Elsewhere => Some(external(self.file, index)),
        }
    }
}

impl ElfFile {
    /// The undefined symbols of a relocatable file: their names, and the otherwise unused addresses
    /// that its relocations use for them. Allocates the result.
    ///
    /// # Errors
    ///
    /// [`ModuleError`] if the symbol table cannot be read.
    pub fn undefined_symbols(&self) -> Result<Vec<(Cow<'_, str>, Vaddr)>, ModuleError> {
        let is_symtab = |_: &ElfFile, header: &Shdr| header.is(elf::SHT_SYMTAB);
        let Some(index) = self
            .indices(is_symtab)
            .next()
            .filter(|_| self.is_relocatable())
        else {
            return Ok(Vec::new());
        };
        let table = SymbolTable::from_section(self, index)?;
        let count = u32::try_from(table.len()).unwrap_or(u32::MAX);
        let undefined = (1..count).filter_map(|index| {
            let symbol = table.get(usize::try_from(index).ok()?)?;
            let is_elsewhere = symbol.section == DefiningSection::Elsewhere;
            let name = String::from_utf8_lossy(table.name(&symbol, MAX_NAME_BYTES));
            is_elsewhere.then(|| (name, Vaddr(external(self, index))))
        });
        Ok(undefined.collect())
    }

    /// The name of the undefined symbol at an address of a relocatable file's relocations.
    #[must_use]
    pub fn undefined_name(&self, at: Vaddr) -> Option<Cow<'_, str>> {
        let distance = at.0.checked_sub(self.externals)?;
        if !self.is_relocatable() || distance % EXTERNAL_STEP != 0 {
            return None;
        }
        let is_symtab = |_: &ElfFile, header: &Shdr| header.is(elf::SHT_SYMTAB);
        let table = SymbolTable::from_section(self, self.indices(is_symtab).next()?).ok()?;
        let symbol = table.get(usize::try_from(distance / EXTERNAL_STEP).ok()?)?;
        let is_elsewhere = symbol.section == DefiningSection::Elsewhere && distance > 0;
        is_elsewhere.then(|| String::from_utf8_lossy(table.name(&symbol, MAX_NAME_BYTES)))
    }
}

/// The address of the undefined symbol at that index.
pub(crate) fn external(file: &ElfFile, index: u32) -> u64 {
    file.externals
        .saturating_add(u64::from(index) * EXTERNAL_STEP)
}

impl RelocationHowto {
    fn mask(self) -> u64 {
        u64::MAX >> (64 - self.bits)
    }

    fn implicit_addend(self, old: u64) -> i64 {
        let unused = 64 - self.bits;
        ((old << unused).cast_signed() >> unused) << self.shift
    }

    /// `old` with `value` in its field; `None` if it fits neither as signed nor as unsigned.
    fn insert(self, old: u64, value: u64) -> Option<u64> {
        let shifted = value.cast_signed() >> self.shift;
        let mask = self.mask();
        let unused = 64 - self.bits;
        let fits_unsigned = shifted.cast_unsigned() & !mask == 0;
        let fits_signed = (shifted << unused) >> unused == shifted;
        (fits_signed || fits_unsigned).then(|| (old & !mask) | (shifted.cast_unsigned() & mask))
    }
}

fn store(place: &mut [u8], value: u64, little: bool) {
    let bytes = value.to_le_bytes();
    if little {
        place
            .iter_mut()
            .zip(bytes)
            .for_each(|(to, from)| *to = from);
    } else {
        place
            .iter_mut()
            .rev()
            .zip(bytes)
            .for_each(|(to, from)| *to = from);
    }
}

#[cfg(test)]
mod tests {
    use unspool_rows::Arch;

    use super::*;

    #[test]
    fn fields_keep_their_other_bits_and_refuse_what_does_not_fit() {
        let howto = |arch, kind| arch::format(arch).howto(kind).unwrap();
        let call = howto(Arch::Aarch64, elf::R_AARCH64_CALL26);
        assert_eq!(call.insert(0x9400_0000, 0x1000), Some(0x9400_0400));
        assert_eq!(
            call.insert(0x9400_0000, (-4_i64).cast_unsigned()),
            Some(0x97ff_ffff)
        );
        assert_eq!(call.implicit_addend(0x97ff_ffff), -4);
        let word = howto(Arch::X86_64, elf::R_X86_64_PC32);
        assert_eq!(word.insert(0, 0xffff_ffff), Some(0xffff_ffff));
        assert_eq!(word.insert(0, 1 << 32), None);
        let all = howto(Arch::X86_64, elf::R_X86_64_64);
        assert_eq!(all.insert(1, u64::MAX), Some(u64::MAX));
    }

    #[test]
    fn both_byte_orders() {
        for little in [true, false] {
            let mut place = [0; 4];
            store(&mut place, 0x0102_0304, little);
            assert_eq!(place[0], if little { 4 } else { 1 });
            assert_eq!(load(&place, little), 0x0102_0304);
        }
    }
}
