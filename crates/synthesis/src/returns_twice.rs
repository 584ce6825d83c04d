//! Functions that may return again, when what they returned to has gone on.

use std::collections::HashSet;

use unspool_elf::{ElfFile, Symbols};

/// Those of C, POSIX and glibc, and what glibc's and musl's headers make of them.
const NAMES: &[&str] = &[
    "__sigsetjmp",
    "_setjmp",
    "getcontext",
    "setjmp",
    "sigsetjmp",
    "vfork",
];

/// The addresses of the functions of a file, and of those of others that it calls, that may return again.
#[must_use]
pub fn returns_twice_addresses(file: &ElfFile, symbols: &Symbols) -> HashSet<u64> {
    let own = symbols.iter().map(|symbol| (symbol.name, symbol.address));
    let others = file.undefined_symbols().unwrap_or_default();
    let is_one = |name: &str| NAMES.contains(&name.split('@').next().unwrap_or(name));
    let found = own.chain(others).filter(|(name, _)| is_one(name));
    found.map(|(_, address)| address.0).collect()
}
