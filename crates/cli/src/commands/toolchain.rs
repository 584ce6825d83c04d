//! `as` and `ld`: compilers run this program under these names in place of an assembler or a linker.
//!
//! The next program of that name in `PATH` does the work. Then its output is repaired as by `unspool
//! check --fix`. Findings never fail a build: the exit status is that program's.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, bail};

use unspool_files::MAX_STREAM_BYTES;

use super::check::repair;
use crate::output;
use crate::text::words::split_words;

/// The names of assemblers and linkers. The name of a target can precede them:
/// `x86_64-linux-gnu-as`.
const NAMES: [&str; 6] = ["as", "ld", "ld.bfd", "ld.gold", "ld.lld", "ld.mold"];

/// The name by which the program is called, if it is an assembler's or a linker's.
pub(crate) fn name(called: &OsStr) -> Option<OsString> {
    let name = Path::new(called).file_name()?;
    let is_one = NAMES.iter().any(|one| {
        let target = name.as_bytes().strip_suffix(one.as_bytes());
        target.is_some_and(|target| target.is_empty() || target.ends_with(b"-"))
    });
    is_one.then(|| name.to_owned())
}

pub(crate) fn run(name: &OsStr, arguments: &[OsString]) -> anyhow::Result<ExitCode> {
    let program = next(name)?;
    let output = written(arguments);
    let before = version(&output);
    let status = Command::new(&program).args(arguments).status();
    let status = status.with_context(|| format!("cannot run {}", program.display()))?;
    let after = version(&output);
    if status.success() && after.is_some() && after != before {
        match repair::repair(&output) {
            // A file without a table, or of another architecture, needs no repair.
            Err(error) if repair::is_unsupported(&error) => {}
            Err(error) => output::error(&format_args!("{error:#}")),
            Ok(()) => {}
        }
    }
    Ok(super::pass_on(status))
}

/// The next program of that name in `PATH` that is not this one.
fn next(name: &OsStr) -> anyhow::Result<PathBuf> {
    let own = env::current_exe().context("cannot find this program")?;
    let is_own = |path: &Path| fs::canonicalize(path).is_ok_and(|path| path == own);
    match super::in_path(name).find(|path| !is_own(path)) {
        Some(path) => Ok(path),
        None => bail!(
            "no {} in PATH except unspool itself: install it (Debian packages binutils, lld, mold)",
            name.display()
        ),
    }
}

/// Identifies the version of a file: the program creates a new one, or changes it.
fn version(path: &Path) -> Option<(u64, i64, i64)> {
    let metadata = fs::metadata(path).ok()?;
    let is_file = metadata.is_file();
    is_file.then(|| (metadata.ino(), metadata.mtime(), metadata.mtime_nsec()))
}

/// The output file of an assembler or a linker.
fn written(arguments: &[OsString]) -> PathBuf {
    let mut output = PathBuf::from("a.out");
    let mut arguments = expanded(arguments).into_iter();
    while let Some(argument) = arguments.next() {
        match argument.as_bytes() {
            b"-o" | b"--output" => output = arguments.next().unwrap_or_default().into(),
            argument => {
                let joined = argument
                    .strip_prefix(b"--output=")
                    .or_else(|| joined(argument));
                if let Some(joined) = joined {
                    output = OsStr::from_bytes(joined).into();
                }
            }
        }
    }
    output
}

/// The name in `-oNAME`. Linkers have other options that begin with `-o`: `-oformat`, `-omagic`.
fn joined(argument: &[u8]) -> Option<&[u8]> {
    let is_other = [b"-oformat".as_slice(), b"-omagic"].contains(&argument);
    argument.strip_prefix(b"-o").filter(|_| !is_other)
}

/// Arguments, with each `@FILE` replaced by its contents.
fn expanded(arguments: &[OsString]) -> Vec<OsString> {
    let mut all = Vec::new();
    for argument in arguments {
        let file = argument.as_bytes().strip_prefix(b"@");
        let read = |file| unspool_files::read(Path::new(OsStr::from_bytes(file)), MAX_STREAM_BYTES);
        match file.and_then(|file| read(file).ok()) {
            Some(text) => all.extend(split_words(&text)),
            None => all.push(argument.clone()),
        }
    }
    all
}
