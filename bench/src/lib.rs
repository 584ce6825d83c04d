//! Shared parts of the measurements: timing, a random sequence, and the files to measure.
//!
//! A figure is the median of several rounds, with the slow end beside it. Peers alternate within
//! each round, so that the machine's drift affects all of them. Compare ratios, not times.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context as _;

pub mod eh_elf;
mod framehop;
pub mod recording;
pub mod remote;
pub mod synthesis_quality;
mod sys;
mod tracee;

pub use framehop::framehop_module;
pub use sys::{Usage, interrupt, map, prefetch, thread_time, wait};
pub use tracee::{Tid, Tracee, TraceeStop, single_step};

/// The files on the command line, or the big ELF files of this machine.
#[must_use]
pub fn big_files() -> Vec<PathBuf> {
    const FILES: [&str; 7] = [
        "/usr/lib/x86_64-linux-gnu/libc.so.6",
        "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
        "/usr/lib/x86_64-linux-gnu/libcrypto.so.3",
        "/usr/lib/gcc/x86_64-linux-gnu/12/cc1plus",
        "/usr/lib/x86_64-linux-gnu/libLLVM-15.so.1",
        "/usr/bin/gdb",
        "/usr/lib/x86_64-linux-gnu/libpython3.11.so.1.0",
    ];
    let given = std::env::args_os().skip(1).filter(|arg| arg != "--bench");
    let given: Vec<PathBuf> = given.map(PathBuf::from).collect();
    if given.is_empty() {
        FILES
            .map(PathBuf::from)
            .into_iter()
            .filter(|path| path.exists())
            .collect()
    } else {
        given
    }
}

/// Durations of repeated runs.
#[derive(Debug, Clone, Default)]
pub struct Durations(Vec<Duration>);

impl Durations {
    /// The median; zero if empty.
    #[must_use]
    pub fn median(&self) -> Duration {
        self.percentile(50)
    }

    /// The least duration that 99 % do not exceed; zero if empty.
    #[must_use]
    pub fn p99(&self) -> Duration {
        self.percentile(99)
    }

    /// The longest; zero if empty.
    #[must_use]
    pub fn max(&self) -> Duration {
        self.percentile(100)
    }

    /// By nearest rank.
    fn percentile(&self, percent: usize) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * percent).div_ceil(100);
        sorted
            .get(rank.saturating_sub(1))
            .copied()
            .unwrap_or_default()
    }
}

impl Extend<Duration> for Durations {
    fn extend<I: IntoIterator<Item = Duration>>(&mut self, durations: I) {
        self.0.extend(durations);
    }
}

impl IntoIterator for Durations {
    type Item = Duration;
    type IntoIter = std::vec::IntoIter<Duration>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl FromIterator<Duration> for Durations {
    fn from_iter<I: IntoIterator<Item = Duration>>(durations: I) -> Self {
        Durations(durations.into_iter().collect())
    }
}

/// The ratio of `a` to `b`.
#[must_use]
pub fn ratio(a: Duration, b: Duration) -> f64 {
    a.as_secs_f64() / b.as_secs_f64().max(f64::MIN_POSITIVE)
}

/// `part` as a fraction of `whole`.
#[must_use]
pub fn share(part: u64, whole: u64) -> f64 {
    let as_f64 = |count: u64| Duration::from_nanos(count).as_secs_f64();
    as_f64(part) / as_f64(whole).max(f64::MIN_POSITIVE)
}

/// A duration in milliseconds.
#[must_use]
pub fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// A duration in microseconds.
#[must_use]
pub fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// The median of some figures, by nearest rank; 0 if empty.
#[must_use]
pub fn median(figures: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = figures.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len().div_ceil(2).saturating_sub(1);
    sorted.get(middle).copied().unwrap_or_default()
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
    /// Starts the sequence.
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

/// A new folder for temporary files, removed on drop.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Creates it.
    ///
    /// # Errors
    ///
    /// It exists already, or cannot be created.
    pub fn new() -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("unspool-bench-{}", std::process::id()));
        std::fs::create_dir(&path).with_context(|| path.display().to_string())?;
        Ok(Scratch(path))
    }

    /// Compiles a C or C++ program, given the name of its source, without frame pointers; returns
    /// its path.
    ///
    /// # Errors
    ///
    /// The compiler is missing or fails.
    pub fn compile(
        &self,
        output: &str,
        name: &str,
        source: &str,
        arguments: &[&str],
    ) -> anyhow::Result<PathBuf> {
        let path = self.join(name);
        std::fs::write(&path, source)?;
        let output = self.join(output);
        let compiler = match path.extension() {
            Some(extension) if extension == "cpp" => "c++",
            _ => "cc",
        };
        let built = Command::new(compiler)
            .args(["-O2", "-g", "-fomit-frame-pointer"])
            .args(arguments)
            .arg(&path)
            .arg("-o")
            .arg(&output)
            .status()
            .with_context(|| format!("cannot run {compiler} (Debian package g++)"))?;
        anyhow::ensure!(built.success(), "cannot compile {name}");
        Ok(output)
    }

    /// A path in it.
    #[must_use]
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Builds the release version of the command, next to this benchmark, and returns its path.
///
/// # Errors
///
/// It cannot be built.
pub fn unspool() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe()?; // TARGET/release/deps/NAME
    let target = own.ancestors().nth(3).context("no target folder")?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--quiet", "--release", "-p", "unspool-cli"])
        .arg("--target-dir")
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .context("cannot run cargo")?;
    anyhow::ensure!(built.success(), "cargo build failed");
    Ok(target.join("release").join("unspool"))
}

/// The first line of a program's version output.
///
/// # Errors
///
/// It cannot be run, or fails.
pub fn version(program: impl AsRef<OsStr>) -> anyhow::Result<String> {
    let name = Path::new(program.as_ref()).display().to_string();
    let output = Command::new(program).arg("--version").output();
    let output = output.with_context(|| format!("cannot run {name}"))?;
    anyhow::ensure!(output.status.success(), "{name}: {}", output.status);
    let text = String::from_utf8(output.stdout)?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

/// The files on the command line, or the existing ones of the published figures.
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
#[must_use]
pub fn rustc_driver() -> Option<PathBuf> {
    let output = Command::new("rustc")
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
