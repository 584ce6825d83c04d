//! Names of functions, from the symbol tables of the module in memory (`.dynsym`) and of its file
//! (`.symtab`).
//!
//! `dladdr` takes the loader's lock. Here tables are read in place, from memory that may have been
//! overwritten. The worst result is a wrong name.

use core::ffi::CStr;

use unspool_files::raw::RawFile;
use unspool_rows::{Memory, RuntimeAddr, Vaddr};
use unspool_unwind::local::OwnMemory;

use super::bytes::{u16_at, u32_at, u64_at};
use super::module_file;
use super::modules::{BoundedName, NamedModule};

/// A function.
#[derive(Clone, Copy)]
pub(crate) struct FunctionName {
    /// Its name, mangled.
    pub(crate) name: BoundedName,
    /// Its first address.
    pub(crate) start: RuntimeAddr,
}

/// The function at an address of a module.
#[must_use]
pub(crate) fn find(
    module: &NamedModule<'_>,
    at: RuntimeAddr,
    memory: &OwnMemory,
) -> Option<FunctionName> {
    let vaddr = module.loaded.bias.to_vaddr(at);
    in_memory(module, vaddr, memory)
        .or_else(|| in_file(module, vaddr))
        .map(|(name, start)| FunctionName {
            name,
            start: module.loaded.bias.to_runtime(start),
        })
}

/// An entry of a symbol table (`Elf64_Sym`).
type SymbolBytes = [u8; SYMBOL_BYTES];

const SYMBOL_BYTES: usize = 24;

/// The best symbol so far for an address.
struct BestSymbol {
    at: Vaddr,
    /// The start of its function, and the offset of its name.
    found: Option<(u64, u32)>,
}

impl BestSymbol {
    fn new(at: Vaddr) -> Self {
        BestSymbol { at, found: None }
    }

    /// Takes a symbol if its function covers the address and begins behind the best one.
    fn consider(&mut self, symbol: &SymbolBytes) {
        const STT_FUNC: u8 = 2;
        const STT_GNU_IFUNC: u8 = 10;
        let [
            a,
            b,
            c,
            d,
            info,
            _other,
            section_low,
            section_high,
            numbers @ ..,
        ] = symbol;
        let (Some(start), Some(size)) = (u64_at(numbers, 0), u64_at(numbers, 8)) else {
            return;
        };
        let is_function = matches!(info & 15, STT_FUNC | STT_GNU_IFUNC);
        let is_defined = [*section_low, *section_high] != [0, 0];
        let covers = start <= self.at.0 && self.at.0 - start < size;
        let is_better = self.found.is_none_or(|(best, _)| best < start);
        if is_function && is_defined && covers && is_better {
            self.found = Some((start, u32::from_le_bytes([*a, *b, *c, *d])));
        }
    }
}

fn read<const N: usize>(memory: &OwnMemory, addr: u64) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    memory.read(RuntimeAddr(addr), &mut bytes).ok()?;
    Some(bytes)
}

fn half(memory: &OwnMemory, addr: u64) -> Option<u32> {
    read(memory, addr).map(u32::from_le_bytes)
}

/// The addresses in the dynamic section.
#[derive(Default)]
struct DynamicSection {
    symbols: u64,
    names: u64,
    hash: Option<u64>,
    gnu_hash: Option<u64>,
}

impl DynamicSection {
    /// The maximum number of entries in a dynamic section.
    const MAX_ENTRIES: u64 = 256;

    fn read(module: &NamedModule<'_>, memory: &OwnMemory) -> Option<DynamicSection> {
        const PT_DYNAMIC: u32 = 2;
        let start = module.loaded.start.0;
        let header: [u8; 64] = read(memory, start)?;
        let (offset, size, count) = (
            u64_at(&header, 32)?,
            u16_at(&header, 54)?,
            u16_at(&header, 56)?,
        );
        let at = |number| start.wrapping_add(offset) + u64::from(size) * u64::from(number);
        let mut headers = (0..count).map_while(|number| read::<56>(memory, at(number)));
        let header = headers.find(|header| u32_at(header, 0) == Some(PT_DYNAMIC))?;
        let section = module.loaded.bias.to_runtime(Vaddr(u64_at(&header, 16)?)).0;
        // The loader adds the bias to these pointers, except where it cannot write, as in the vDSO.
        let pointer = |value: u64| {
            if value < start {
                module.loaded.bias.to_runtime(Vaddr(value)).0
            } else {
                value
            }
        };
        let mut dynamic = DynamicSection::default();
        for number in 0..Self::MAX_ENTRIES {
            let entry: [u8; 16] = read(memory, section.wrapping_add(16 * number))?;
            let value = u64_at(&entry, 8)?;
            match u64_at(&entry, 0)? {
                0 => break,
                4 => dynamic.hash = Some(pointer(value)),
                5 => dynamic.names = pointer(value),
                6 => dynamic.symbols = pointer(value),
                0x6fff_fef5 => dynamic.gnu_hash = Some(pointer(value)),
                _ => {}
            }
        }
        Some(dynamic)
    }

    /// The number of symbols, from the hash tables.
    fn count(&self, memory: &OwnMemory) -> Option<u64> {
        if let Some(hash) = self.hash {
            return half(memory, hash.wrapping_add(4)).map(u64::from);
        }
        let table = self.gnu_hash?;
        let header: [u8; 16] = read(memory, table)?;
        let buckets = u64::from(u32_at(&header, 0)?);
        let first = u64::from(u32_at(&header, 4)?);
        let filter = u64::from(u32_at(&header, 8)?);
        let buckets_at = table.wrapping_add(16 + 8 * filter);
        let chains_at = buckets_at.wrapping_add(4 * buckets);
        let mut last = 0;
        for bucket in 0..buckets.min(MAX_SYMBOLS) {
            last = last.max(u64::from(half(
                memory,
                buckets_at.wrapping_add(4 * bucket),
            )?));
        }
        if last < first {
            return Some(first);
        }
        // The last chain ends with an odd hash.
        for number in last..last.saturating_add(MAX_SYMBOLS) {
            let hash = half(memory, chains_at.wrapping_add(4 * (number - first)))?;
            if hash & 1 != 0 {
                return Some(number + 1);
            }
        }
        None
    }
}

/// The maximum number of symbols to read: a damaged table may claim any number.
const MAX_SYMBOLS: u64 = 1 << 20;

fn in_memory(
    module: &NamedModule<'_>,
    at: Vaddr,
    memory: &OwnMemory,
) -> Option<(BoundedName, Vaddr)> {
    let dynamic = DynamicSection::read(module, memory)?;
    let mut best = BestSymbol::new(at);
    for number in 0..dynamic.count(memory)?.min(MAX_SYMBOLS) {
        let entry = dynamic.symbols.wrapping_add(SYMBOL_BYTES as u64 * number);
        best.consider(&read(memory, entry)?);
    }
    let (start, name) = best.found?;
    let name = RuntimeAddr(dynamic.names.wrapping_add(u64::from(name)));
    Some((BoundedName::read(memory, name), Vaddr(start)))
}

fn in_file(module: &NamedModule<'_>, at: Vaddr) -> Option<(BoundedName, Vaddr)> {
    const SECTION: usize = 64;
    const SHT_SYMTAB: u32 = 2;
    // Modules have shorter paths.
    let mut path = [0_u8; 257];
    path.get_mut(..module.path().len())?
        .copy_from_slice(module.path());
    let file = RawFile::open(CStr::from_bytes_until_nul(&path).ok()?)?;
    if !module_file::is_file_of_module(&file, module) {
        return None;
    }
    let mut header = [0_u8; 64];
    file.read_exact_at(0, &mut header)?;
    let (sections, count) = (u64_at(&header, 40)?, u16_at(&header, 60)?);
    let section = |number: u64| {
        let mut bytes = [0; SECTION];
        let offset = sections.checked_add(SECTION as u64 * number)?;
        file.read_exact_at(offset, &mut bytes)?;
        Some(bytes)
    };
    let mut all = (0..u64::from(count)).map_while(section);
    let symbols = all.find(|section| u32_at(section, 4) == Some(SHT_SYMTAB))?;
    let names = section(u64::from(u32_at(&symbols, 40)?))?;
    let (offset, size) = (u64_at(&symbols, 24)?, u64_at(&symbols, 32)?);
    let mut best = BestSymbol::new(at);
    let mut buffer = [0; 128 * SYMBOL_BYTES];
    let mut done = 0;
    while done < size.min(MAX_SYMBOLS * SYMBOL_BYTES as u64) {
        let length = file.read_at(offset.checked_add(done)?, &mut buffer)?;
        let (entries, _) = buffer.get(..length)?.as_chunks::<SYMBOL_BYTES>();
        let left = usize::try_from((size - done) / SYMBOL_BYTES as u64).ok()?;
        if entries.is_empty() || left == 0 {
            break;
        }
        entries
            .iter()
            .take(left)
            .for_each(|entry| best.consider(entry));
        done += (entries.len() * SYMBOL_BYTES) as u64;
    }
    let (start, name) = best.found?;
    let mut text = [0; 256];
    let length = file.read_at(u64_at(&names, 24)?.checked_add(u64::from(name))?, &mut text)?;
    Some((BoundedName::from_bytes(text.get(..length)?), Vaddr(start)))
}
