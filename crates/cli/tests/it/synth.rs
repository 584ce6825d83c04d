//! `unspool synth` as a user calls it: its output is checked by the C++ runtime, gdb and readelf.

use std::path::Path;
use std::process::Output;

use tempfile::TempDir;
use unspool_testing::tool;

use crate::harness;

fn run(program: &str, arguments: &[&str], folder: &Path) -> Output {
    let mut command = tool(program);
    command
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn unspool(arguments: &[&str], folder: &Path) -> Output {
    harness::unspool_in(folder, arguments).output().unwrap()
}

/// A C++ program with a C function that has no table.
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
        let output = run(compiler, arguments, folder.path());
        assert!(output.status.success(), "{}", text(&output));
    }
    folder
}

/// The functions of a backtrace at the throw of an exception.
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
    names(&text(&run("gdb", &commands, folder)))
}

/// The functions in gdb's backtraces.
fn names(output: &str) -> Vec<String> {
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
    let before = run("./throws", &[], folder);
    assert!(!before.status.success(), "{}", text(&before));
    let stripped = run("strip", &["-o", "stripped", "throws"], folder);
    assert!(stripped.status.success());

    for program in ["throws", "stripped"] {
        let new = format!("{program}.new");
        let output = unspool(
            &["synth", program, "--emit", "eh_frame", "-o", &new],
            folder,
        );
        assert!(output.status.success(), "{}", text(&output));
        let after = run(&format!("./{new}"), &[], folder);
        assert_eq!(text(&after), "caught 42\n");
        assert!(after.status.success());
        // All entries are found by the search table: readelf reports no missing one.
        let frames = run("readelf", &["--debug-dump=frames", "-W", &new], folder);
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

/// libstdc++'s own entries, rewritten with all size optimizations. They have personality routines,
/// LSDAs, remembered states, offsets in words, and CIEs for parts that start within a function.
#[test]
fn exceptions_and_gdb_go_through_a_library_that_is_written_anew() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let source = "tests/programs/throws_in_library.cc";
    let source = format!("{}/{source}", env!("CARGO_MANIFEST_DIR"));
    let built = run("g++", &["-O2", "-o", "throws", &source], folder);
    assert!(built.status.success(), "{}", text(&built));
    let library = "/lib/x86_64-linux-gnu/libstdc++.so.6";
    let new = "libstdc++.so.6";
    let output = unspool(&["synth", library, "--emit", "eh_frame", "-o", new], folder);
    assert!(output.status.success(), "{}", text(&output));

    let frames = ["--debug-dump=frames", "-W", new];
    let frames = run("readelf", &frames, folder);
    assert!(frames.status.success() && frames.stderr.is_empty());
    let frames = text(&frames);
    for instruction in ["remember_state", "restore_state", "def_cfa_offset_sf"] {
        let times = frames.matches(&format!("DW_CFA_{instruction}")).count();
        assert!(times > 100, "{instruction}: {times}");
    }
    // More CIEs than kinds of entries: with personality and LSDA, with one of them, with neither.
    assert!(frames.matches(" CIE\n").count() > 4, "{frames}");

    let throws = |library_path: &str| {
        let path = format!("LD_LIBRARY_PATH={library_path}");
        let ran = run("env", &[&path, "./throws"], folder);
        assert_eq!(text(&ran), "caught 1111\n");
        let path = format!("set environment LD_LIBRARY_PATH {library_path}");
        let commands = [
            &path,
            "catch throw",
            "run",
            "bt",
            "continue",
            "bt",
            "continue",
            "bt",
        ];
        let commands = commands.iter().flat_map(|command| ["-ex", command]);
        let arguments: Vec<&str> = ["-batch", "-nx"].into_iter().chain(commands).collect();
        names(&text(&run(
            "gdb",
            &[&arguments[..], &["throws"]].concat(),
            folder,
        )))
    };
    let (before, after) = (throws(""), throws("."));
    assert!(
        before.len() > 9 && before.contains(&"main".to_owned()),
        "{before:?}"
    );
    assert_eq!(before, after);
}

/// Symbols that `strip` has removed still give the starts of functions, as long as they are in a
/// debug file.
#[test]
fn symbols_of_the_debug_file_count() {
    let folder = program();
    let folder = folder.path();
    let through = || {
        let output = unspool(&["synth", "throws", "--format", "json"], folder);
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let functions = report["functions"].as_array().unwrap().iter();
        let found = functions.filter(|function| function["name"] == "through");
        found.cloned().collect::<Vec<_>>()
    };
    let before = through();
    assert_eq!(before.len(), 1);
    let strip = |arguments: &[&str]| {
        let output = run("objcopy", arguments, folder);
        assert!(output.status.success(), "{}", text(&output));
    };
    strip(&["--only-keep-debug", "throws", "throws.debug"]);
    strip(&["--strip-all", "throws"]);
    assert_eq!(through(), Vec::<serde_json::Value>::new());
    strip(&["--add-gnu-debuglink=throws.debug", "throws"]);
    assert_eq!(through(), before);
}

#[test]
fn found_rows_are_kept_and_failures_are_reported() {
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
