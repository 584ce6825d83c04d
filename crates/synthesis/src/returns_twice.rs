//! Functions that may return twice, after their caller has continued.

use std::collections::HashSet;

use unspool_elf::{ElfFile, Symbols};

/// Functions of C, POSIX and glibc, and the names that glibc's and musl's headers give them.
const NAMES: &[&str] = &[
    "__sigsetjmp",
    "_setjmp",
    "getcontext",
    "setjmp",
    "sigsetjmp",
    "vfork",
];

/// Addresses of a file's functions, and of its imported ones, that may return twice.
#[must_use]
pub fn returns_twice_addresses(file: &ElfFile, symbols: &Symbols) -> HashSet<u64> {
    let own = symbols.iter().map(|symbol| (symbol.name, symbol.address));
    let others = file.undefined_symbols().unwrap_or_default();
    let is_one = |name: &str| NAMES.contains(&name.split('@').next().unwrap_or(name));
    let found = own.chain(others).filter(|(name, _)| is_one(name));
    found.map(|(_, address)| address.0).collect()
}
