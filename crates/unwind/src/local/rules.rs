//! The rules that the walks of all threads share, and the size of their memory: 1 MiB, unless the
//! program ([`resize`]) or the environment sets another.
//!
//! `UNSPOOL_RULES` is for programs that set nothing: `512K`, `4M`, or a number of bytes. A value
//! that is not a [`RuleCacheSize`] is ignored, and any value in a setuid program.
//!
//! More memory helps a program with calls in more than 1,024 pages of code (4 MiB): pages with
//! numbers that are equal modulo that share a block. `UNSPOOL_STATS=1` ([`super::stats`]) prints
//! how many rules were looked up in tables.
//!
//! Memory used by walks is never unmapped, since walks do not report their end. A size that is
//! requested again gets the same memory.

use unspool_files::environment::variable_bytes;

use super::sys::RuleCacheCell;
use crate::walk::{MappedRuleCache, OutOfMemory, RuleCache, RuleCacheMemory, RuleCacheSize};

/// Not mapped: a walk can use it at any time, without preparation.
static MEMORY: RuleCacheMemory = RuleCacheMemory::new();
static DEFAULT: RuleCache<'static> = MEMORY.rules();

/// The chosen rules.
static CHOSEN: RuleCacheCell = RuleCacheCell::none();

/// The rules of each size ever chosen, the smallest first.
static MAPPED: [RuleCacheCell; SIZES] = [const { RuleCacheCell::none() }; SIZES];

/// The number of sizes.
const SIZES: usize = number(RuleCacheSize::MAX) + 1;

/// The index of a size.
const fn number(size: RuleCacheSize) -> usize {
    (size.bytes() / RuleCacheSize::MIN.bytes()).trailing_zeros() as usize
}

/// The rules that walks share at present, for a separate [`Walker`](crate::Walker).
/// Async-signal-safe.
#[inline]
#[must_use]
pub fn current() -> &'static RuleCache<'static> {
    CHOSEN.get().unwrap_or(&DEFAULT)
}

/// Sets the size of the rules' memory. Later walks, of all threads, share the rules in that memory,
/// and learn known ones again. Before [`prepare`](super::prepare), that call has the kernel provide
/// the memory; afterwards it is provided as it is used.
///
/// Not async-signal-safe: maps memory.
///
/// # Errors
///
/// [`OutOfMemory`]; nothing has changed.
pub fn resize(size: RuleCacheSize) -> Result<(), OutOfMemory> {
    CHOSEN.set(mapped_for(size)?);
    Ok(())
}

/// Sets the size of the rules' memory from the environment, unless the program has set it.
/// [`prepare`](super::prepare) calls this. A program with its own [`Walker`](crate::Walker) that
/// does not prepare should call it. Not async-signal-safe.
pub fn begin() {
    let size =
        variable_bytes(c"UNSPOOL_RULES").and_then(|size| str::from_utf8(size).ok()?.parse().ok());
    if let Some(Ok(rules)) = size.map(mapped_for) {
        CHOSEN.set_first(rules);
    }
}

/// The rules of a size.
fn mapped_for(size: RuleCacheSize) -> Result<&'static RuleCache<'static>, OutOfMemory> {
    let Some(kept) = MAPPED.get(number(size)).filter(|_| size != DEFAULT.size()) else {
        return Ok(&DEFAULT);
    };
    match kept.get() {
        Some(rules) => Ok(rules),
        // If two threads get here at once, the mapping of one is wasted.
        None => Ok(kept.set_first(MappedRuleCache::new(size)?.keep())),
    }
}
