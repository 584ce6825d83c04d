//! Every ELF file of the machine, read by both readers.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use crate::Error;
use crate::elf;
use crate::readelf_compare::{ReadelfReport, compare_file};

/// The folders of programs and libraries on a Debian machine.
pub(crate) const SYSTEM_FOLDERS: [&str; 11] = [
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/libx32",
    "/usr/libexec",
    "/usr/bin",
    "/usr/sbin",
    "/usr/local",
    "/usr/arm-linux-gnueabihf",
    "/usr/aarch64-linux-gnu",
    "/opt",
];

/// The most differences, and the most problems, to print.
const MAX_PRINTED: usize = 20;

/// The options.
#[derive(Debug)]
pub struct ReadelfCompareOptions {
    /// The number of files read in parallel.
    pub jobs: usize,
    /// Files, or folders of them.
    pub paths: Vec<PathBuf>,
}

impl ReadelfCompareOptions {
    /// Parses `[--jobs N] [PATH...]`.
    ///
    /// # Errors
    ///
    /// An option is unknown, or its value is not a number.
    pub fn parse(args: impl Iterator<Item = OsString>) -> Result<Self, Error> {
        let mut options = ReadelfCompareOptions {
            jobs: 1,
            paths: Vec::new(),
        };
        let mut args = args;
        while let Some(arg) = args.next() {
            match arg.to_str() {
                Some("--jobs") => {
                    let number = args.next().and_then(|number| number.into_string().ok());
                    let number = number.and_then(|number| number.parse().ok());
                    options.jobs = number.ok_or("--jobs needs a number")?;
                }
                Some(option) if option.starts_with("--") => {
                    return Err(format!("unknown option {option}").into());
                }
                _ => options.paths.push(PathBuf::from(arg)),
            }
        }
        if options.paths.is_empty() {
            options.paths = SYSTEM_FOLDERS.iter().map(PathBuf::from).collect();
        }
        Ok(options)
    }
}

/// Compares every file; `true` if there is no difference.
///
/// # Errors
///
/// The results cannot be printed.
pub fn compare_all(options: &ReadelfCompareOptions, out: &mut impl Write) -> Result<bool, Error> {
    let files = find(&options.paths);
    let mut total = ReadelfTotals::default();
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..options.jobs.max(1) {
            let (sender, next, files) = (sender.clone(), &next, &files);
            scope.spawn(move || {
                while let Some(path) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if sender.send((path, compare_file(path))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for (done, (path, result)) in receiver.iter().enumerate() {
            progress(done + 1, files.len(), path);
            total.add(path, result, out)?;
        }
        Ok::<_, Error>(())
    })?;
    total.print(out)?;
    Ok(total.differences == 0 && total.failures == 0)
}

fn progress(done: usize, of: usize, path: &Path) {
    let mut err = io::stderr();
    if err.is_terminal() {
        // Failing to display this does not matter.
        let _ = write!(err, "\r\x1b[K{done}/{of} {}", path.display());
        if done == of {
            let _ = write!(err, "\r\x1b[K");
        }
        let _ = err.flush();
    }
}

/// Every ELF file and archive below `paths`, once even if it has several names.
#[must_use]
pub fn find(paths: &[PathBuf]) -> Vec<PathBuf> {
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    let mut waiting: Vec<PathBuf> = paths.iter().rev().cloned().collect();
    // A path given by the user may be a link; other links are not followed.
    let mut asked: HashSet<PathBuf> = paths.iter().cloned().collect();
    while let Some(path) = waiting.pop() {
        let metadata = if asked.remove(&path) {
            fs::metadata(&path)
        } else {
            fs::symlink_metadata(&path)
        };
        let Ok(metadata) = metadata else { continue };
        if !seen.insert((metadata.dev(), metadata.ino())) {
            continue;
        }
        if metadata.is_dir() {
            let entries = fs::read_dir(&path).into_iter().flatten().flatten();
            let mut below: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
            below.sort_by(|a, b| b.cmp(a));
            waiting.extend(below);
        } else if metadata.is_file() && has_magic(&path) {
            found.push(path);
        }
    }
    found
}

fn has_magic(path: &Path) -> bool {
    let mut head = [0; 8];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut head));
    read.is_ok() && elf::is_readable(&head)
}

/// The results over all files.
#[derive(Debug, Default)]
struct ReadelfTotals {
    files: u64,
    without: u64,
    sections: u64,
    fdes: u64,
    rows: u64,
    problems: u64,
    /// The number of problems of each kind.
    kinds: BTreeMap<String, u64>,
    differences: u64,
    failures: u64,
    printed_differences: usize,
    printed_problems: usize,
}

impl ReadelfTotals {
    fn add(
        &mut self,
        path: &Path,
        result: Result<ReadelfReport, Error>,
        out: &mut impl Write,
    ) -> Result<(), Error> {
        let report = match result {
            Ok(report) => report,
            Err(error) => {
                self.failures += 1;
                writeln!(out, "failed: {}: {error}", path.display())?;
                return Ok(());
            }
        };
        self.files += 1;
        self.without += u64::from(report.sections == 0);
        self.sections += report.sections;
        self.fdes += report.fdes;
        self.rows += report.rows;
        self.problems += report.problems.len() as u64;
        self.differences += report.difference_count;
        for (member, problem) in &report.problems {
            let kind = format!("{:?}", problem.error);
            let kind = kind.split([' ', '(']).next().unwrap_or_default();
            *self.kinds.entry(kind.to_owned()).or_default() += 1;
            if self.printed_problems < MAX_PRINTED {
                self.printed_problems += 1;
                let member = member.as_deref().unwrap_or_default();
                writeln!(out, "problem: {} {member}: {problem}", path.display())?;
            }
        }
        for difference in &report.differences {
            if self.printed_differences < MAX_PRINTED {
                self.printed_differences += 1;
                writeln!(out, "difference: {} {difference}", path.display())?;
            }
        }
        Ok(())
    }

    fn print(&self, out: &mut impl Write) -> Result<(), Error> {
        writeln!(
            out,
            "{} files, {} of them without CFI, {} not readable; {} sections",
            self.files, self.without, self.failures, self.sections
        )?;
        writeln!(out, "{} FDEs, {} rows compared", self.fdes, self.rows)?;
        writeln!(out, "{} problems", self.problems)?;
        for (kind, count) in &self.kinds {
            writeln!(out, "  {kind}: {count}")?;
        }
        writeln!(out, "{} differences", self.differences)?;
        Ok(())
    }
}
