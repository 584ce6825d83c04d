//! Bad stacks and wrong tables: no crash, no hang, and all frames before the damage are right. Each
//! case has its own process, so that a crash affects only that case.
#![cfg(test)]
#![cfg(target_arch = "x86_64")]
#![expect(unsafe_code, reason = "calls C, forks")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests panic on failure"
)]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

mod files;
mod others;
mod own;

use unspool_testing::scratch_folder;
use xtask::bad_frames::{self, BadFramesProgram, cases, cases::Case};

fn directory() -> PathBuf {
    scratch_folder(Path::new(env!("CARGO_TARGET_TMPDIR")), "bad-frames")
}

/// The library for the own process.
fn library() -> PathBuf {
    let path = directory().join("scenes.so");
    bad_frames::build(&path, &["scenes.c", "lies.S"], &["-shared", "-fPIC"]).unwrap();
    path
}

/// The program for others.
fn program() -> BadFramesProgram {
    BadFramesProgram::build(directory().join("scenes")).unwrap()
}

/// A walk's result: the code addresses of its frames, and why it ended.
#[derive(Debug)]
struct WalkOutput {
    addresses: Vec<u64>,
    end: String,
}

/// What is wrong with the result, if the symbols have these addresses.
fn complaint(case: &Case, output: &WalkOutput, symbol: impl Fn(&str) -> u64) -> Option<String> {
    let sound: Vec<u64> = case.sound().map(&symbol).collect();
    let mut windows = output.addresses.windows(sound.len());
    let mut problems = String::new();
    if !windows.any(|window| window == sound) {
        write!(problems, "{sound:x?} is not in it. ").unwrap();
    }
    if !case.ends.contains(&&*output.end) {
        write!(problems, "not {:?}. ", case.ends).unwrap();
    }
    let shown = &output.addresses[..output.addresses.len().min(20)];
    let all = output.addresses.len();
    (!problems.is_empty()).then(|| {
        format!(
            "{}: {problems}{}, {all} frames: {shown:x?}",
            case.name, output.end
        )
    })
}

fn assert_none(complaints: &[String]) {
    assert!(
        complaints.is_empty(),
        "{} complaints:\n{}",
        complaints.len(),
        complaints.join("\n")
    );
}
