//! `as`: compilers run this program under that name in place of an assembler.
//!
//! The next `as` in `PATH` does the assembling. Then the object file is repaired as by `unspool
//! check --fix`. Findings never fail a build: the exit status is the assembler's.

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

/// The name by which the program is called, if it is an assembler's: `as`, or
/// `x86_64-linux-gnu-as`.
pub(crate) fn name(called: &OsStr) -> Option<OsString> {
    let name = Path::new(called).file_name()?;
    let is_assembler = name == "as" || name.as_bytes().ends_with(b"-as");
    is_assembler.then(|| name.to_owned())
}

pub(crate) fn run(name: &OsStr, arguments: &[OsString]) -> anyhow::Result<ExitCode> {
    let assembler = next(name)?;
    let output = written(arguments);
    let before = version(&output);
    let status = Command::new(&assembler).args(arguments).status();
    let status = status.with_context(|| format!("cannot run {}", assembler.display()))?;
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
            "no assembler {} in PATH except unspool itself: install binutils",
            name.display()
        ),
    }
}

/// Identifies the version of a file: an assembler creates a new one, or changes it.
fn version(path: &Path) -> Option<(u64, i64, i64)> {
    let metadata = fs::metadata(path).ok()?;
    let is_file = metadata.is_file();
    is_file.then(|| (metadata.ino(), metadata.mtime(), metadata.mtime_nsec()))
}

/// The output file of an assembler.
fn written(arguments: &[OsString]) -> PathBuf {
    let mut output = PathBuf::from("a.out");
    let mut arguments = expanded(arguments).into_iter();
    while let Some(argument) = arguments.next() {
        match argument.as_bytes() {
            b"-o" => output = arguments.next().unwrap_or_default().into(),
            [b'-', b'o', joined @ ..] => output = OsStr::from_bytes(joined).into(),
            _ => {}
        }
    }
    output
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
