//! The cost of walks of the own stack: counted if `UNSPOOL_STATS=1` is in the environment, and
//! printed to standard error when the process ends.
//!
//! [`prepare`](super::prepare) handles all of it. A program with its own [`Walker`](crate::Walker)
//! uses these functions.
//!
//! Without counting, a walk only reads one flag.

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use unspool_files::environment::variable_bytes;

use super::{rules, sys};
use crate::walk::WalkResult;

static COUNTS: WalkCounters = WalkCounters {
    is_on: AtomicBool::new(false),
    sums: [const { AtomicU64::new(0) }; WalkCounters::NAMES.len()],
};

struct WalkCounters {
    is_on: AtomicBool,
    sums: [AtomicU64; WalkCounters::NAMES.len()],
}

impl WalkCounters {
    const NAMES: [&'static str; 9] = [
        "walks",
        "frames",
        "of them guessed",
        "of them remembered",
        "rules searched",
        "of them learned",
        "steps by the cursor",
        "walks begun again",
        "nanoseconds",
    ];
}

/// Counts from now on, if the environment requests it. `true` if this is new, so the caller must
/// have the counts [printed](print()). Not async-signal-safe.
pub fn begin() -> bool {
    variable_bytes(c"UNSPOOL_STATS") == Some(b"1") && !COUNTS.is_on.swap(true, Ordering::Relaxed)
}

/// Walks, and counts the walk if counting is on. Async-signal-safe if `walk` is.
#[inline(always)]
pub fn counted(walk: impl FnOnce() -> WalkResult) -> WalkResult {
    let started = COUNTS.is_on.load(Ordering::Relaxed).then(sys::nanoseconds);
    let walk = walk();
    if let Some(started) = started {
        count(&walk, started);
    }
    walk
}

#[cold]
fn count(walk: &WalkResult, started: u64) {
    let work = &walk.stats;
    let numbers = [
        1,
        walk.frames as u64,
        walk.guesses as u64,
        work.remembered.into(),
        work.searched.into(),
        work.learned.into(),
        work.by_cursor.into(),
        work.began_again.into(),
        sys::nanoseconds().saturating_sub(started),
    ];
    for (sum, number) in COUNTS.sums.iter().zip(numbers) {
        sum.fetch_add(number, Ordering::Relaxed);
    }
}

/// Prints the counts since [`begin`], if that has started counting, as a line. Async-signal-safe.
pub fn print() {
    if !COUNTS.is_on.load(Ordering::Relaxed) {
        return;
    }
    let mut text = LineBuffer {
        bytes: [0; 512],
        length: 0,
    };
    // The line is truncated if it does not fit.
    let _ = text.write_counts();
    sys::write_error(text.bytes.get(..text.length).unwrap_or_default());
}

/// A line in a fixed buffer.
struct LineBuffer {
    bytes: [u8; 512],
    length: usize,
}

impl LineBuffer {
    fn write_counts(&mut self) -> fmt::Result {
        self.write_str("unspool")?;
        let counts = WalkCounters::NAMES.iter().zip(&COUNTS.sums);
        for (number, (name, sum)) in counts.enumerate() {
            let separator = if number == 0 { ':' } else { ',' };
            write!(self, "{separator} {} {name}", sum.load(Ordering::Relaxed))?;
        }
        let size = rules::current().size().bytes() / 1024;
        writeln!(self, ", {size} KiB for rules")
    }
}

impl Write for LineBuffer {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.length.checked_add(text.len()).ok_or(fmt::Error)?;
        let room = self.bytes.get_mut(self.length..end).ok_or(fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}
