//! Counts in the output of `perf script`.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;

/// The roots of stacks: the entry points of the program, the dynamic linker, and threads.
const ROOTS: [&str; 7] = [
    "_start",
    "_dl_start_user",
    "clone3",
    "__clone3",
    "__clone",
    "clone",
    "__GI___clone3",
];

/// Whether a stack is complete that has these two outermost functions, the first of which called
/// the second. A stripped program has no name for its entry, which is the caller of this function
/// of the C library.
pub(crate) fn is_whole(outermost: &str, next: &str) -> bool {
    ROOTS.contains(&outermost) || next.starts_with("__libc_start_main")
}

/// The stacks of a recording.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StackTotals {
    /// Stacks with user frames.
    pub(crate) all: u64,
    /// Stacks that reach a root.
    pub(crate) whole: u64,
    /// The number of their user frames.
    pub(crate) frames: u64,
    /// Lost samples, if reported.
    pub(crate) lost: Option<u64>,
}

/// Counts the stacks of threads with a name.
pub(crate) fn stacks(text: &Path, comm: &str) -> anyhow::Result<StackTotals> {
    let mut stacks = StackTotals {
        lost: Some(0),
        ..StackTotals::default()
    };
    let mut is_wanted = false;
    let mut frames = 0;
    let (mut outermost, mut next) = (String::new(), String::new());
    for line in BufReader::new(File::open(text)?).lines() {
        let line = line?;
        if line.starts_with(char::is_whitespace) {
            let mut words = line.split_whitespace();
            let address = words.next().unwrap_or_default();
            // Kernel addresses have sixteen digits.
            let is_kernel = address.len() == 16 && address.starts_with("ffff");
            if !is_kernel && !line.ends_with("(inlined)") {
                let name = words.next().unwrap_or_default();
                frames += 1;
                std::mem::swap(&mut outermost, &mut next);
                outermost.clear();
                outermost.push_str(name.split('+').next().unwrap_or_default());
            }
            continue;
        }
        if is_wanted && frames > 0 {
            stacks.all += 1;
            stacks.frames += frames;
            stacks.whole += u64::from(is_whole(&outermost, &next));
        }
        frames = 0;
        outermost.clear();
        next.clear();
        if let Some((_, count)) = line.split_once("PERF_RECORD_LOST") {
            let count = count.split_whitespace().last();
            let count: u64 = count.and_then(|count| count.parse().ok()).unwrap_or(0);
            stacks.lost = stacks.lost.map(|lost| lost + count);
        }
        is_wanted = if line.is_empty() {
            false
        } else {
            line.starts_with(comm)
        };
    }
    Ok(stacks)
}
