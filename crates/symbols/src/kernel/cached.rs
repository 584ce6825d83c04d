//! The cached list: the kernel takes a tenth of a second to produce it.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `unspkern` |
//! | 4 | the version, 1 |
//! | 4 × 4 | the size of the state in bytes, how many functions and modules there are, the size of the names in bytes |
//! | | the state ([`state`]) |
//! | 16 each | functions: address (8), where its name begins (4), the name's length (2), one above the module's index (2) |
//! | | the names |
//! | | the modules, each behind its length (4) |
//! | 4 | the CRC-32 of all that |
//!
//! Symbols that come and go while the kernel runs are not stored: BPF programs and function
//! tracers.

use std::fs;

use super::{KallsymsEntry, KernelSymbols};
use crate::cache::CacheReader;

const MAGIC: [u8; 8] = *b"unspkern";
const VERSION: u32 = 1;

/// Names in brackets that are not modules.
const TRANSIENT_MODULES: [&str; 4] = [
    "bpf",
    "__builtin__ftrace",
    "__builtin__kprobes",
    "__builtin__fprobe",
];

/// The state of the kernel: the list changes only if this does. `None` if unknown.
pub(super) fn state() -> Option<Vec<u8>> {
    let mut state = fs::read("/proc/sys/kernel/random/boot_id").ok()?;
    // Without that file, there are no modules.
    let modules = fs::read_to_string("/proc/modules").unwrap_or_default();
    for line in modules.lines() {
        let mut fields = line.split(' ');
        // Name, size and address; the fields between them change as modules are used.
        let kept = [fields.next(), fields.next(), fields.nth(3)];
        kept.iter()
            .flatten()
            .for_each(|field| state.extend(field.bytes().chain([0])));
    }
    Some(state)
}

/// `None` if a count does not fit 32 bits.
pub(super) fn encode(symbols: &KernelSymbols, state: &[u8]) -> Option<Vec<u8>> {
    let is_passing = |entry: &&KallsymsEntry| {
        let module = symbols.module(entry);
        module.is_some_and(|module| TRANSIENT_MODULES.contains(&module))
    };
    let entries = || symbols.entries.iter().filter(|entry| !is_passing(entry));
    let counts = [
        state.len(),
        entries().count(),
        symbols.modules.len(),
        symbols.names.len(),
    ];
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    for count in counts {
        bytes.extend(u32::try_from(count).ok()?.to_le_bytes());
    }
    bytes.extend(state);
    for entry in entries() {
        bytes.extend(entry.address.to_le_bytes());
        bytes.extend(entry.name.to_le_bytes());
        bytes.extend(entry.length.to_le_bytes());
        bytes.extend(entry.module.to_le_bytes());
    }
    bytes.extend(symbols.names.bytes());
    for module in &symbols.modules {
        bytes.extend(u32::try_from(module.len()).ok()?.to_le_bytes());
        bytes.extend(module.bytes());
    }
    bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
    Some(bytes)
}

/// Decodes a list from [`encode`] in the same state.
pub(super) fn decode(bytes: &[u8], state: &[u8]) -> Option<KernelSymbols> {
    let (content, checksum) = bytes.split_last_chunk()?;
    let mut rest = CacheReader(content);
    if rest.array()? != MAGIC || rest.u32()? != VERSION {
        return None;
    }
    let [state_size, entries, modules, names] = [(); 4].map(|()| rest.count());
    if rest.bytes(state_size?)? != state
        || crc32fast::hash(content) != u32::from_le_bytes(*checksum)
    {
        return None;
    }
    let symbols = KernelSymbols {
        entries: rest.all(entries?, entry)?,
        names: text(&mut rest, names?)?,
        modules: rest.all(modules?, |rest| {
            let length = rest.count()?;
            text(rest, length)
        })?,
        bad_lines: 0,
    };
    rest.0.is_empty().then_some(symbols)
}

fn entry(reader: &mut CacheReader<'_>) -> Option<KallsymsEntry> {
    Some(KallsymsEntry {
        address: reader.u64()?,
        name: reader.u32()?,
        length: u16::from_le_bytes(reader.array()?),
        module: u16::from_le_bytes(reader.array()?),
    })
}

fn text(reader: &mut CacheReader<'_>, length: usize) -> Option<String> {
    String::from_utf8(reader.bytes(length)?.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use unspool_rows::RuntimeAddr;

    use super::*;

    const LIST: &str = "\
ffffffff81000000 T start
ffffffff81000040 t helper
ffffffffc0000010 t first\t[mod_a]
ffffffffc0000050 t prog\t[bpf]
ffffffffc0004000 t other\t[mod_b]
";

    fn kept(state: &[u8]) -> Vec<u8> {
        let symbols = KernelSymbols::from_text(LIST.as_bytes()).unwrap();
        encode(&symbols, state).unwrap()
    }

    #[test]
    fn cached_kernel_symbols_read_back() {
        let symbols = decode(&kept(b"boot"), b"boot").unwrap();
        let name = |address| {
            let found = symbols.get(RuntimeAddr(address))?;
            Some((found.name, found.module))
        };
        assert_eq!(name(0xffff_ffff_8100_0050), Some(("helper", None)));
        assert_eq!(name(0xffff_ffff_c000_4001), Some(("other", Some("mod_b"))));
        assert_eq!(name(0xffff_ffff_c000_2050), None);
        assert_eq!(symbols.len(), 4, "without the BPF program");
        assert!(decode(&kept(b"boot"), b"another").is_none());
    }

    #[test]
    fn a_damaged_file_is_not_used() {
        let bytes = kept(b"boot");
        for length in 0..bytes.len() {
            assert!(
                decode(&bytes[..length], b"boot").is_none(),
                "{length} bytes"
            );
        }
        for at in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 0x41;
            assert!(decode(&bytes, b"boot").is_none(), "byte {at}");
        }
    }

    #[test]
    fn numbers_that_lead_nowhere_are_no_names() {
        let symbols = KernelSymbols {
            entries: vec![KallsymsEntry {
                address: 1,
                name: 9,
                length: 9,
                module: 7,
            }],
            ..KernelSymbols::default()
        };
        let symbols = decode(&encode(&symbols, b"").unwrap(), b"").unwrap();
        assert!(symbols.get(RuntimeAddr(1)).is_none());
    }
}
