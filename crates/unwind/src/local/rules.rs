//! The rules that the walks of all threads share, and how much memory they may take: 1 MiB, if neither the
//! program ([`resize`]) nor the environment says anything else.
//!
//! `UNSPOOL_RULES` is for programs that say nothing: `512K`, `4M`, or a number of bytes. What is no
//! [`RuleCacheSize`] is ignored, and so is all of it in a setuid program.
//!
//! More memory is of use to a program whose walks meet the calls of more than 1,024 pages of code
//! (4 MiB): pages whose numbers are the same modulo that take turns. `UNSPOOL_STATS=1` ([`super::stats`])
//! prints how many rules had to be looked up in tables.
//!
//! Memory that walks have used stays, since they do not say when they have ended; a size that is asked for a
//! second time has the memory that it had.

use super::sys::{self, RuleCacheCell};
use crate::walk::{MappedRuleCache, OutOfMemory, RuleCache, RuleCacheMemory, RuleCacheSize};

/// Not mapped: a walk uses it at any time, without preparation.
static MEMORY: RuleCacheMemory = RuleCacheMemory::new();
static DEFAULT: RuleCache<'static> = MEMORY.rules();

/// Those that somebody has chosen.
static CHOSEN: RuleCacheCell = RuleCacheCell::none();

/// Those of each size that somebody has ever chosen, the smallest first.
static MAPPED: [RuleCacheCell; SIZES] = [const { RuleCacheCell::none() }; SIZES];

/// How many sizes there are.
const SIZES: usize = number(RuleCacheSize::MAX) + 1;

/// The number of a size.
const fn number(size: RuleCacheSize) -> usize {
    (size.bytes() / RuleCacheSize::MIN.bytes()).trailing_zeros() as usize
}

/// The rules that walks share now, for a [`Walker`](crate::Walker) of one's own. Async-signal-safe.
#[inline]
#[must_use]
pub fn current() -> &'static RuleCache<'static> {
    CHOSEN.get().unwrap_or(&DEFAULT)
}

/// Gives rules so much memory: walks that begin from now on, of all threads, share rules in there, and
/// learn those again that they knew. Before [`prepare`](super::prepare), that has the kernel provide it;
/// afterwards it is provided as it is used.
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

/// Gives rules as much memory as the environment says, unless the program has said so.
/// [`prepare`](super::prepare) does it; whoever walks with a [`Walker`](crate::Walker) of their own, and
/// does not prepare, does it by this. Not async-signal-safe.
pub fn begin() {
    let size =
        sys::variable(c"UNSPOOL_RULES").and_then(|size| str::from_utf8(size).ok()?.parse().ok());
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
        // Of two threads that come here at once, one has mapped in vain.
        None => Ok(kept.set_first(MappedRuleCache::new(size)?.keep())),
    }
}
