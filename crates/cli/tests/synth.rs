//! `unspool synth` as a user calls it: what it writes is held against the C++ runtime, gdb and readelf.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

fn run(program: &str, package: &str, arguments: &[&str], folder: &Path) -> Output {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .env("XDG_CACHE_HOME", folder)
        .output();
    output.unwrap_or_else(|error| panic!("cannot run {program}: {error}; install {package}"))
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn unspool(arguments: &[&str], folder: &Path) -> Output {
    run(env!("CARGO_BIN_EXE_unspool"), "", arguments, folder)
}

/// A C++ program with a function of C in it that has no table.
fn program() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let source = |name: &str| format!("{}/tests/programs/{name}", env!("CARGO_MANIFEST_DIR"));
    let without_table = [
        "-O2",
        "-fno-asynchronous-unwind-tables",
        "-fno-exceptions",
        "-c",
        &source("throws_through.c"),
    ];
    let with_table = [
        "-O2",
        "-o",
        "throws",
        &source("throws.cc"),
        "throws_through.o",
    ];
    for (compiler, arguments) in [("gcc", &without_table), ("g++", &with_table)] {
        let output = run(compiler, compiler, arguments, folder.path());
        assert!(output.status.success(), "{}", text(&output));
    }
    folder
}

/// The functions of a backtrace where the exception is thrown.
fn backtrace(program: &str, folder: &Path) -> Vec<String> {
    let commands = [
        "-batch",
        "-nx",
        "-ex",
        "catch throw",
        "-ex",
        "run",
        "-ex",
        "bt",
        program,
    ];
    let output = run("gdb", "gdb", &commands, folder);
    let output = text(&output);
    let frames = output.lines().filter(|line| line.starts_with('#'));
    let name = |line: &str| {
        let rest = line.split_once(" in ").map_or(line, |(_, rest)| rest);
        rest.split(' ').next().unwrap().to_owned()
    };
    frames.map(name).collect()
}

#[test]
fn exceptions_and_gdb_go_through_code_that_had_no_table() {
    let folder = program();
    let folder = folder.path();
    let before = run("./throws", "", &[], folder);
    assert!(!before.status.success(), "{}", text(&before));
    let stripped = run("strip", "binutils", &["-o", "stripped", "throws"], folder);
    assert!(stripped.status.success());

    for program in ["throws", "stripped"] {
        let new = format!("{program}.new");
        let output = unspool(
            &["synth", program, "--emit", "eh_frame", "-o", &new],
            folder,
        );
        assert!(output.status.success(), "{}", text(&output));
        let after = run(&format!("./{new}"), "", &[], folder);
        assert_eq!(text(&after), "caught 42\n");
        assert!(after.status.success());
        // All entries are found by the search table: readelf says so of none.
        let frames = run(
            "readelf",
            "binutils",
            &["--debug-dump=frames", "-W", &new],
            folder,
        );
        assert!(
            frames.status.success() && frames.stderr.is_empty(),
            "{}",
            text(&frames)
        );
    }
    let frames = backtrace("./throws.new", folder);
    let own = frames
        .iter()
        .filter(|name| ["through", "main"].contains(&name.as_str()));
    assert_eq!(own.collect::<Vec<_>>(), ["through", "main"], "{frames:?}");
}

#[test]
fn what_is_kept_is_found_and_what_cannot_be_is_said() {
    let folder = program();
    let folder = folder.path();
    let output = unspool(&["synth", "throws", "--format", "json"], folder);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["schema"], "unspool.synth");
    let written = report["written"].as_str().unwrap();
    assert!(written.ends_with(".synth.unspool") && Path::new(written).exists());
    let functions = report["functions"].as_array().unwrap();
    let through = functions
        .iter()
        .find(|function| function["name"] == "through");
    let through = through.unwrap();
    assert_eq!(through["instructions"], through["described"]);

    // The compiler's own table of the same function.
    let shown = |arguments: &[&str]| {
        let output = unspool(arguments, folder);
        assert!(output.status.success(), "{}", text(&output));
        let text = text(&output);
        let rows = text.lines().filter(|line| line.starts_with("  0x"));
        rows.map(str::to_owned).collect::<Vec<_>>()
    };
    let made = shown(&["show", "throws", "--from", "synth", "--function", "main"]);
    let declared = shown(&["show", "throws", "--function", "main"]);
    assert_eq!(made[..2], declared[..2]);

    for (arguments, said) in [
        (&["synth", "absent"][..], "absent"),
        (&["synth", "throws", "--emit", "eh_frame"], "--output"),
        (
            &["show", "throws", "--from", "synth", "--instructions"],
            "--instructions",
        ),
    ] {
        let output = unspool(arguments, folder);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{arguments:?}: {}",
            text(&output)
        );
        assert!(
            text(&output).contains(said),
            "{arguments:?}: {}",
            text(&output)
        );
    }
}
