//! The functions that loaded objects export, found by name as the loader finds them (gABI,
//! "Dynamic Section"; the GNU hash table, as binutils writes it).

use unspool_rows::{LoadBias, RuntimeAddr, Vaddr};

use super::elf::{u32_at, u64_at};

const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_GNU_HASH: u64 = 0x6fff_fef5;

/// The size of a symbol, and of an entry of the dynamic section, in bytes.
const SYMBOL: usize = 24;
const ENTRY: usize = 16;

/// An object's tables for the loader.
pub(super) struct ExportedSymbols<'m> {
    bias: LoadBias,
    hash: &'m [u8],
    symbols: &'m [u8],
    strings: &'m [u8],
}

impl<'m> ExportedSymbols<'m> {
    /// The tables that the dynamic section of an object names. `bytes_from` returns the object's
    /// bytes from a run-time address on.
    pub(super) fn find(
        dynamic: &[u8],
        bias: LoadBias,
        bytes_from: impl Fn(RuntimeAddr) -> Option<&'m [u8]>,
    ) -> Option<Self> {
        let table = |wanted: u64| {
            let mut entries = dynamic.chunks_exact(ENTRY);
            let entry = entries.find(|entry| u64_at(entry, 0) == Some(wanted))?;
            let address = u64_at(entry, 8)?;
            // glibc has replaced the link-time addresses; other loaders have not.
            bytes_from(RuntimeAddr(address)).or_else(|| bytes_from(bias.to_runtime(Vaddr(address))))
        };
        Some(ExportedSymbols {
            bias,
            hash: table(DT_GNU_HASH)?,
            symbols: table(DT_SYMTAB)?,
            strings: table(DT_STRTAB)?,
        })
    }

    /// The address of an exported symbol.
    pub(super) fn address(&self, name: &[u8]) -> Option<RuntimeAddr> {
        let number = |at: usize| u32_at(self.hash, 4 * at);
        let index = |at: usize| usize::try_from(number(at)?).ok();
        let (buckets, first, words) = (index(0)?, index(1)?, index(2)?);
        let buckets_at = words.checked_mul(2)?.checked_add(4)?;
        let hash = gnu_hash(name);
        let bucket = usize::try_from(hash).ok()?.checked_rem(buckets)?;
        let mut symbol = index(buckets_at.checked_add(bucket)?)?;
        let chains_at = buckets_at.checked_add(buckets)?;
        loop {
            let chain = number(chains_at.checked_add(symbol.checked_sub(first)?)?)?;
            if chain | 1 == hash | 1
                && let Some(address) = self.address_of(symbol, name)
            {
                return Some(address);
            }
            if chain & 1 != 0 {
                return None;
            }
            symbol = symbol.checked_add(1)?;
        }
    }

    /// The address of a symbol, if it has this name.
    fn address_of(&self, symbol: usize, name: &[u8]) -> Option<RuntimeAddr> {
        let at = symbol.checked_mul(SYMBOL)?;
        let start = usize::try_from(u32_at(self.symbols, at)?).ok()?;
        let rest = self.strings.get(start..)?.strip_prefix(name)?;
        let value = u64_at(self.symbols, at.checked_add(8)?)?;
        (rest.first() == Some(&0)).then(|| self.bias.to_runtime(Vaddr(value)))
    }
}

fn gnu_hash(name: &[u8]) -> u32 {
    name.iter().fold(5381, |hash: u32, byte| {
        hash.wrapping_mul(33).wrapping_add(u32::from(*byte))
    })
}
