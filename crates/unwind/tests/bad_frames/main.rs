//! Bad stacks and tables that lie: no crash, no hang, and what was found before the damage is
//! right. Each case has a process of its own, so that a crash is that case's.
#![cfg(test)]
#![cfg(target_arch = "x86_64")]
#![expect(unsafe_code, reason = "calls C, forks")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests panic on failure"
)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

mod cases;
mod files;
mod others;
mod own;

use cases::Case;

fn directory() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("bad-frames-{}-{number}", std::process::id());
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&path).unwrap();
    path
}

/// Compiles sources beside this file.
fn build(name: &str, sources: &[&str], options: &[&str]) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bad_frames");
    let to = directory().join(name);
    let output = Command::new("gcc")
        .args(["-O1", "-fno-optimize-sibling-calls", "-Wl,--build-id", "-o"])
        .arg(&to)
        .args(options)
        .args(sources.iter().map(|source| folder.join(source)))
        .output()
        .expect("install the Debian package gcc");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && errors.is_empty(),
        "{sources:?}: {errors}"
    );
    files::make_bad_entries(&to);
    to
}

/// The library for the own process.
fn library() -> PathBuf {
    build("scenes.so", &["scenes.c", "lies.S"], &["-shared", "-fPIC"])
}

/// The program for others, and the addresses of its symbols.
fn program() -> (PathBuf, BTreeMap<String, u64>) {
    let program = build(
        "scenes",
        &["main.c", "scenes.c", "lies.S"],
        &["-no-pie", "-g"],
    );
    let output = Command::new("nm").arg(&program).output();
    let output = output.expect("install the Debian package binutils");
    let text = String::from_utf8(output.stdout).unwrap();
    let symbols = text.lines().filter_map(|line| {
        let (address, rest) = line.split_once(' ')?;
        let (_, name) = rest.split_once(' ')?;
        Some((name.to_owned(), u64::from_str_radix(address, 16).ok()?))
    });
    (program, symbols.collect())
}

/// What a walk found: where its frames stand, and why it ended.
#[derive(Debug)]
struct Found {
    addresses: Vec<u64>,
    end: String,
}

/// What is wrong with what was found, where the symbols have these addresses.
fn complaint(case: &Case, found: &Found, symbol: impl Fn(&str) -> u64) -> Option<String> {
    let sound: Vec<u64> = case.sound().map(&symbol).collect();
    let mut windows = found.addresses.windows(sound.len());
    let mut problems = String::new();
    if !windows.any(|window| window == sound) {
        write!(problems, "{sound:x?} is not in it. ").unwrap();
    }
    if !case.ends.contains(&&*found.end) {
        write!(problems, "not {:?}. ", case.ends).unwrap();
    }
    let shown = &found.addresses[..found.addresses.len().min(20)];
    let all = found.addresses.len();
    (!problems.is_empty()).then(|| {
        format!(
            "{}: {problems}{}, {all} frames: {shown:x?}",
            case.name, found.end
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
