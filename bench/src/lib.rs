//! What the measurements share: timing, a random sequence, and the files to measure.
//!
//! A figure is the median of several rounds; peers take turns within each round, so that the
//! machine's drift meets all of them. Compare ratios, not times.

use std::path::PathBuf;
use std::time::{Duration, Instant};

mod sys;

pub use sys::prefetch;

/// The median of some durations; zero of none.
#[must_use]
pub fn median(mut durations: Vec<Duration>) -> Duration {
    durations.sort_unstable();
    durations
        .get(durations.len() / 2)
        .copied()
        .unwrap_or_default()
}

/// Times one call.
pub fn time<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = Instant::now();
    let result = work();
    (start.elapsed(), result)
}

/// A small random sequence (xorshift*): the same in every run.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Begins the sequence.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Random(seed | 1)
    }

    /// The next number below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16;
        usize::try_from(number).unwrap_or(0) % limit.max(1)
    }
}

/// The files named on the command line, or those of the published figures that are there.
#[must_use]
pub fn files() -> Vec<PathBuf> {
    let named: Vec<PathBuf> = std::env::args_os()
        .skip(1)
        .filter(|arg| arg != "--bench")
        .map(PathBuf::from)
        .collect();
    if !named.is_empty() {
        return named;
    }
    let mut found: Vec<PathBuf> = [
        "/lib/x86_64-linux-gnu/libc.so.6",
        "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
        "/usr/bin/gdb",
        "/usr/lib/x86_64-linux-gnu/libLLVM-15.so.1",
        "/usr/bin/node",
    ]
    .map(PathBuf::from)
    .into_iter()
    .filter(|path| path.exists())
    .collect();
    found.extend(rustc_driver());
    found
}

/// The compiler's own library: 154 MB, post-link optimised.
fn rustc_driver() -> Option<PathBuf> {
    let output = std::process::Command::new("rustc")
        .args(["--print", "sysroot"])
        .output()
        .ok()?;
    let lib = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim()).join("lib");
    let mut entries = std::fs::read_dir(lib).ok()?.flatten();
    let is_driver = |name: &str| name.starts_with("librustc_driver") && name.ends_with(".so");
    entries
        .find(|entry| is_driver(&entry.file_name().to_string_lossy()))
        .map(|entry| entry.path())
}
