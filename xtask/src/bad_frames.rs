//! Programs with bad stacks (`crates/process/tests/bad_frames`), and the results of walkers.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Error, packages, shared_objects};

pub mod cases;

use cases::Case;

/// Compiles some of the sources, and replaces placeholder instructions in unwind tables by bad
/// ones.
///
/// # Errors
///
/// The compiler is missing or fails, or a file cannot be read or written.
pub fn build(to: &Path, sources: &[&str], options: &[&str]) -> Result<(), Error> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/process/tests/bad_frames");
    let output = Command::new(packages::path("/usr/bin/gcc")?)
        .args(["-O1", "-fno-optimize-sibling-calls", "-Wl,--build-id", "-o"])
        .arg(to)
        .args(options)
        .args(sources.iter().map(|source| folder.join(source)))
        .output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() || !errors.is_empty() {
        return Err(format!("{}: {errors}", to.display()).into());
    }
    let mut bytes = fs::read(to)?;
    for (name, bad) in [(b"cut!", [0x0f, 0x7f]), (b"new!", [0x3f, 0])] {
        let marker = [&[0x16, 15, 4], &name[..]].concat();
        let at = bytes.windows(marker.len()).position(|at| at == marker);
        let instruction = at.and_then(|at| bytes.get_mut(at..at + marker.len()));
        let instruction = instruction.ok_or("a marker is missing")?;
        instruction.fill(0);
        for (byte, bad) in instruction.iter_mut().zip(bad) {
            *byte = bad;
        }
    }
    Ok(fs::write(to, bytes)?)
}

/// The program, at a fixed address.
#[derive(Debug)]
pub struct BadFramesProgram {
    /// Its path.
    pub path: PathBuf,
    symbols: BTreeMap<String, u64>,
}

/// The result of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadWalkOutcome {
    /// It ended, and found all frames up to the bad one.
    AllFramesFound,
    /// It ended, and did not.
    FramesMissing,
    /// It crashed the process.
    Crashed,
    /// It took a second of CPU time, which counts as endless.
    Endless,
}

impl BadFramesProgram {
    /// Builds it.
    ///
    /// # Errors
    ///
    /// As [`build`]; `nm` is missing or fails.
    pub fn build(path: PathBuf) -> Result<BadFramesProgram, Error> {
        build(&path, &["main.c", "scenes.c", "lies.S"], &["-no-pie", "-g"])?;
        let output = Command::new(packages::path("/usr/bin/nm")?)
            .arg(&path)
            .output()?;
        let text = String::from_utf8(output.stdout)?;
        let symbols = text.lines().filter_map(|line| {
            let (address, rest) = line.split_once(' ')?;
            let (_, name) = rest.split_once(' ')?;
            Some((name.to_owned(), u64::from_str_radix(address, 16).ok()?))
        });
        let symbols = symbols.collect();
        Ok(BadFramesProgram { path, symbols })
    }

    /// The address of a symbol, or zero.
    #[must_use]
    pub fn symbol(&self, name: &str) -> u64 {
        self.symbols.get(name).copied().unwrap_or(0)
    }

    /// Makes a library's function walk a bad stack.
    ///
    /// # Errors
    ///
    /// The program cannot be run, or the library does not have the function.
    pub fn walk(&self, case: &Case, walker: &WalkFunction) -> Result<BadWalkOutcome, Error> {
        let output = Command::new(&self.path)
            .args([case.name, walker.function])
            .arg(&walker.library)
            .output()?;
        match (output.status.code(), output.status.signal()) {
            (Some(0), _) => {}
            (Some(code @ 97..=99), _) => {
                return Err(format!("{}, {}: exit code {code}", walker.name, case.name).into());
            }
            (_, Some(SIGXCPU | SIGKILL)) => return Ok(BadWalkOutcome::Endless),
            _ => return Ok(BadWalkOutcome::Crashed),
        }
        let text = String::from_utf8(output.stdout)?;
        let numbers = text.split_whitespace().skip(1);
        let found: Result<Vec<u64>, _> = numbers.map(|hex| u64::from_str_radix(hex, 16)).collect();
        let sound: Vec<u64> = case.sound().map(|name| self.symbol(name)).collect();
        if found?.windows(sound.len()).any(|window| window == sound) {
            Ok(BadWalkOutcome::AllFramesFound)
        } else {
            Ok(BadWalkOutcome::FramesMissing)
        }
    }
}

const SIGKILL: i32 = 9;
const SIGXCPU: i32 = 24;

/// A function that walks its own stack.
#[derive(Debug)]
pub struct WalkFunction {
    /// Its display name.
    pub name: &'static str,
    /// Its name in the program.
    pub function: &'static str,
    /// Its library.
    pub library: PathBuf,
}

const PEERS: [(&str, &str, &str); 6] = [
    (
        "libgcc",
        "_Unwind_Backtrace",
        "/lib/x86_64-linux-gnu/libgcc_s.so.1",
    ),
    ("glibc", "backtrace", "/lib/x86_64-linux-gnu/libc.so.6"),
    // Debian's package has its version in its name: for example, libunwind-16.
    (
        "LLVM",
        "_Unwind_Backtrace",
        "/usr/lib/x86_64-linux-gnu/libunwind.so.1",
    ),
    (
        "libunwind",
        "unw_step",
        "/usr/lib/x86_64-linux-gnu/libunwind.so.8",
    ),
    (
        "libunwind",
        "unw_backtrace",
        "/usr/lib/x86_64-linux-gnu/libunwind.so.8",
    ),
    (
        "libunwind",
        "_Unwind_Backtrace",
        "/usr/lib/x86_64-linux-gnu/libunwind.so.8",
    ),
];

/// Unspool's functions, in its `libunwind.so.8`.
#[must_use]
pub fn ours(library: &Path) -> [WalkFunction; 3] {
    ["unw_step", "unw_backtrace", "_Unwind_Backtrace"].map(|function| WalkFunction {
        name: "unspool",
        function,
        library: library.to_owned(),
    })
}

/// Prints the results of all walkers for all cases; with `--all` also for each case.
pub fn run(
    arguments: impl Iterator<Item = std::ffi::OsString>,
    out: &mut impl Write,
) -> Result<(), Error> {
    let arguments: Vec<_> = arguments.collect();
    let is_all = arguments == ["--all"];
    if !is_all && !arguments.is_empty() {
        return Err("bad-frames takes no argument but --all".into());
    }
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"),
        PathBuf::from,
    );
    let folder = std::path::absolute(target)?.join("bad-frames");
    fs::create_dir_all(&folder)?;
    shared_objects::build(&folder)?;
    shared_objects::build_unspool(&folder)?;
    let program = BadFramesProgram::build(folder.join("scenes"))?;
    let mut walkers = vec![WalkFunction {
        name: "unspool",
        function: "unspool_backtrace",
        library: folder.join("libunspool.so.0"),
    }];
    walkers.extend(ours(&folder.join("libunwind.so.8")));
    for (name, function, library) in PEERS {
        let library = PathBuf::from(library);
        if !library.exists() {
            return Err(
                format!("{} is missing: install {name}'s package", library.display()).into(),
            );
        }
        walkers.push(WalkFunction {
            name,
            function,
            library,
        });
    }
    writeln!(out, "{} bad stacks", cases::ALL.len())?;
    writeln!(out, "| walker | frames kept | lost | died | endless |")?;
    writeln!(out, "|---|---|---|---|---|")?;
    for walker in &walkers {
        print_row(&program, walker, is_all, out)?;
    }
    Ok(())
}

fn print_row(
    program: &BadFramesProgram,
    walker: &WalkFunction,
    is_all: bool,
    out: &mut impl Write,
) -> Result<(), Error> {
    let outcomes = cases::ALL.iter().map(|case| program.walk(case, walker));
    let outcomes: Vec<BadWalkOutcome> = outcomes.collect::<Result<_, _>>()?;
    let count = |of| outcomes.iter().filter(|outcome| **outcome == of).count();
    let [kept, lost, died, endless] = [
        BadWalkOutcome::AllFramesFound,
        BadWalkOutcome::FramesMissing,
        BadWalkOutcome::Crashed,
        BadWalkOutcome::Endless,
    ]
    .map(count);
    let WalkFunction { name, function, .. } = walker;
    writeln!(
        out,
        "| {name} `{function}` | {kept} | {lost} | {died} | {endless} |"
    )?;
    let bad = cases::ALL.iter().zip(&outcomes);
    for (case, outcome) in
        bad.filter(|(_, outcome)| is_all && **outcome != BadWalkOutcome::AllFramesFound)
    {
        writeln!(out, "    {}: {outcome:?}", case.name)?;
    }
    Ok(out.flush()?)
}
