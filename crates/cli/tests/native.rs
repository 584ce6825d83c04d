//! `unspool compile --as native` and `--as c` as a user calls them: a C program walks its own stack with what they
//! make, and glibc's backtrace(3) says what it must find.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

use std::path::Path;
use std::process::{Command, Output};

const LIBC: &str = "/lib/x86_64-linux-gnu/libc.so.6";

fn unspool(arguments: &[&str], folder: &Path) -> Output {
    let unspool = Command::new(env!("CARGO_BIN_EXE_unspool"))
        .args(arguments)
        .current_dir(folder)
        .output();
    unspool.unwrap()
}

fn gcc(arguments: &[&str], folder: &Path) {
    let status = Command::new("gcc")
        .args(arguments)
        .current_dir(folder)
        .status();
    let status = status.unwrap_or_else(|error| panic!("cannot run gcc: {error}; install gcc"));
    assert!(status.success(), "{arguments:?}");
}

#[test]
fn a_program_walks_its_own_stack() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let root = env!("CARGO_MANIFEST_DIR");
    let source = format!("{root}/tests/programs/walks_native.c");
    let include = format!("-I{root}/../native");
    // Without frame pointers, and with some: variable arrays need one.
    gcc(&["-O2", &include, &source, "-o", "walks"], folder);
    let libc = xtask::packages::path(LIBC).unwrap();
    for (file, object) in [("walks", "walks.so"), (libc.to_str().unwrap(), "libc.so")] {
        let output = unspool(&["compile", "--as", "native", file, "-o", object], folder);
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let output = unspool(&["compile", "--as", "c", "walks", "-o", "walks.c"], folder);
    assert!(output.status.success());
    gcc(
        &[
            "-std=c11", "-Wall", "-Wextra", "-Werror", "-O2", "-shared", "-fPIC", "walks.c", "-o",
            "c.so",
        ],
        folder,
    );
    for own in ["./walks.so", "./c.so"] {
        let output = Command::new("./walks")
            .args([own, "./libc.so"])
            .current_dir(folder)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains(" 0 differences"), "{own}: {text}");
        // Eleven times deep, main, two of libc and _start.
        assert!(
            text.starts_with("15 frames, 15 by backtrace"),
            "{own}: {text}"
        );
    }
}

#[test]
fn what_cannot_be_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("text"), "no ELF file\n").unwrap();
    for (arguments, message) in [
        (&["compile", "--as", "native", LIBC][..], "--output"),
        (
            &["compile", "--as", "native", LIBC, LIBC, "-o", "o"],
            "one file",
        ),
        (&["compile", "--as", "c", LIBC, "--into", "o"], "--into"),
        (&["compile", "--as", "native", "text", "-o", "o"], "text"),
        (&["compile", "--as", "native", "none", "-o", "o"], "none"),
    ] {
        let output = unspool(arguments, folder);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(message), "{arguments:?}: {stderr}");
        assert!(!folder.join("o").exists());
    }
}
