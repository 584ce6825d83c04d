//! Any text as a perf map and as the kernel's list of symbols: what a perf map has at an address is the
//! last line that covers it, and the kernel's function at an address covers it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use unspool_rows::RuntimeAddr;
use unspool_symbols::{KernelSymbols, PerfMap};

fuzz_target!(|data: &[u8]| {
    let map = PerfMap::from_text(data);
    // Only of plain text there is a second opinion.
    let plain = |byte: &u8| byte.is_ascii_graphic() || *byte == b' ' || *byte == b'\n';
    if let (true, Ok(text)) = (data.iter().all(plain), std::str::from_utf8(data)) {
        let lines: Vec<(u64, u64, &str)> = text.split('\n').filter_map(line).collect();
        assert_eq!(map.len(), lines.len());
        for (start, size, _) in lines.iter().take(64) {
            for address in [*start, start.saturating_add(*size)] {
                let covers = |line: &&(u64, u64, &str)| {
                    (line.0..line.0.saturating_add(line.1)).contains(&address)
                };
                let expected = lines.iter().rev().find(covers);
                let found = map.get(RuntimeAddr(address));
                let found = found.map(|symbol| (symbol.address.0, symbol.size, symbol.name));
                assert_eq!(found, expected.copied());
            }
        }
    }
    if let Some(kernel) = KernelSymbols::from_text(data) {
        for address in [0, 0x1000, 0xffff_ffff_8100_0000, u64::MAX] {
            if let Some(symbol) = kernel.get(RuntimeAddr(address)) {
                assert!(symbol.address.0 <= address);
                assert!(address - symbol.address.0 < symbol.size);
            }
        }
    }
});

fn line(text: &str) -> Option<(u64, u64, &str)> {
    let text = text.trim();
    let (start, rest) = text.split_once(' ')?;
    let (size, name) = rest.trim_start().split_once(' ')?;
    let number = |text: &str| {
        let digits = text.strip_prefix("0x").unwrap_or(text);
        u64::from_str_radix(digits, 16)
            .ok()
            .filter(|_| !digits.starts_with('+'))
    };
    let name = name.trim();
    (!name.is_empty()).then_some((number(start)?, number(size)?, name))
}
