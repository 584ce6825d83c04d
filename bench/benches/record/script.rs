//! What `perf script` prints, counted.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;

/// Where stacks begin: the program's and the dynamic linker's entry, and that of threads.
const ROOTS: [&str; 7] = [
    "_start",
    "_dl_start_user",
    "clone3",
    "__clone3",
    "__clone",
    "clone",
    "__GI___clone3",
];

/// Whether a stack is whole that has these two functions outermost, of which the first called the second.
/// Stripped programs have no name for their entry; it is what calls this function of the C library.
pub(crate) fn is_whole(outermost: &str, next: &str) -> bool {
    ROOTS.contains(&outermost) || next.starts_with("__libc_start_main")
}

/// The stacks of a recording.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StackTotals {
    /// Those with frames of the process.
    pub(crate) all: u64,
    /// Those that reach a root.
    pub(crate) whole: u64,
    /// The frames of the process, of all.
    pub(crate) frames: u64,
    /// Samples that were lost, if that is said.
    pub(crate) lost: Option<u64>,
}

/// Counts the stacks of threads of a name.
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
            // The kernel's addresses have all of their sixteen digits.
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
        is_wanted = match line.is_empty() {
            true => false,
            false => line.starts_with(comm),
        };
    }
    Ok(stacks)
}
