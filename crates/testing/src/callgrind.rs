//! Costs in instructions, which no other load on the machine changes.

use std::path::Path;

use crate::{command, packages};

/// The instructions of a program with a preloaded library, counted by callgrind.
///
/// # Panics
///
/// It fails, or callgrind is missing.
#[must_use]
pub fn instructions(program: &Path, arguments: &[&str], preloaded: Option<&Path>) -> u64 {
    let valgrind = packages::path("/usr/bin/valgrind").unwrap_or_else(|error| panic!("{error}"));
    let mut command = command(valgrind);
    command
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args(arguments);
    if let Some(library) = preloaded {
        command.env("LD_PRELOAD", library);
    }
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{text}");
    let collected = text
        .lines()
        .find_map(|line| line.split_once("Collected : "));
    collected.unwrap().1.parse().unwrap()
}
