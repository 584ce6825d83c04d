//! `unspool synth` as a user calls it: its output is checked by the C++ runtime, gdb and readelf.

use std::path::Path;

use serde_json::Value;
use unspool_testing::{Finish as _, tool};

use crate::harness::{self, TestFolder, source};
use crate::json;

/// A C++ program with a C function that has no table.
fn program() -> TestFolder {
    let folder = TestFolder::new();
    let (through, throws) = (source("throws_through.c"), source("throws.cc"));
    let without_table = "-O2 -fno-asynchronous-unwind-tables -fno-exceptions -c";
    folder.tool("gcc", &format!("{without_table} {through}"));
    folder.tool("g++", &format!("-O2 -o throws {throws} throws_through.o"));
    folder
}

/// The functions of the backtraces that gdb prints for these commands.
fn backtrace(program: &str, commands: &[&str], folder: &TestFolder) -> Vec<String> {
    let mut gdb = tool("gdb");
    let commands = commands.iter().flat_map(|command| ["-ex", command]);
    gdb.args(["-batch", "-nx"]).args(commands).arg(program);
    let output = gdb.current_dir(folder.path()).finish().all();
    let frames = output.lines().filter(|line| line.starts_with('#'));
    let name = |line: &str| {
        let rest = line.split_once(" in ").map_or(line, |(_, rest)| rest);
        rest.split(' ').next().unwrap().to_owned()
    };
    frames.map(name).collect()
}

/// readelf's output for the frames of a file, about which it must say nothing.
fn frames(folder: &TestFolder, file: &str) -> String {
    let mut readelf = tool("readelf");
    let words = format!("--debug-dump=frames -W {file}");
    let output = folder.started(&mut readelf, &words).finish().ended_with(0);
    assert_eq!(output.err, "", "{file}");
    output.out
}

#[test]
fn exceptions_and_gdb_go_through_code_that_had_no_table() {
    let folder = program();
    assert!(!folder.run("./throws", "").status.success());
    folder.tool("strip", "-o stripped throws");
    for program in ["throws", "stripped"] {
        let new = format!("{program}.new");
        folder.done(&format!("synth {program} --emit eh_frame -o {new}"));
        let after = folder.run(format!("./{new}"), "");
        assert_eq!(after.stdout, b"caught 42\n");
        assert!(after.status.success());
        // All entries are found by the search table: readelf reports no missing one.
        frames(&folder, &new);
    }
    let frames = backtrace("./throws.new", &["catch throw", "run", "bt"], &folder);
    let own = frames
        .iter()
        .filter(|name| ["through", "main"].contains(&name.as_str()));
    assert_eq!(own.collect::<Vec<_>>(), ["through", "main"], "{frames:?}");
}

/// libstdc++'s own entries, rewritten with all size optimizations. They have personality routines,
/// LSDAs, remembered states, offsets in words, and CIEs for parts that start within a function.
#[test]
fn exceptions_and_gdb_go_through_a_library_that_is_written_anew() {
    let folder = TestFolder::new();
    let throws = source("throws_in_library.cc");
    folder.tool("g++", &format!("-O2 -o throws {throws}"));
    let library = "/lib/x86_64-linux-gnu/libstdc++.so.6";
    let new = "libstdc++.so.6";
    folder.done(&format!("synth {library} --emit eh_frame -o {new}"));

    let frames = frames(&folder, new);
    for instruction in ["remember_state", "restore_state", "def_cfa_offset_sf"] {
        let times = frames.matches(&format!("DW_CFA_{instruction}")).count();
        assert!(times > 100, "{instruction}: {times}");
    }
    // More CIEs than kinds of entries: with personality and LSDA, with one of them, with neither.
    assert!(frames.matches(" CIE\n").count() > 4, "{frames}");

    let throws = |library_path: &str| {
        let ran = folder.run("env", &format!("LD_LIBRARY_PATH={library_path} ./throws"));
        assert_eq!(ran.stdout, b"caught 1111\n");
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
        backtrace("throws", &commands, &folder)
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
    let through = || {
        let report = folder.done("synth throws --format json");
        let report = json::document(report);
        let functions = report["functions"].as_array().unwrap().iter();
        let found = functions.filter(|function| function["name"] == "through");
        found.cloned().collect::<Vec<_>>()
    };
    let before = through();
    assert_eq!(before.len(), 1);
    folder.tool("objcopy", "--only-keep-debug throws throws.debug");
    folder.tool("objcopy", "--strip-all throws");
    assert_eq!(through(), Vec::<Value>::new());
    folder.tool("objcopy", "--add-gnu-debuglink=throws.debug throws");
    assert_eq!(through(), before);
}

#[test]
fn found_rows_are_kept_and_failures_are_reported() {
    let folder = program();
    let synth = ["synth", "throws", "--format", "json"];
    let report = harness::unspool_in(folder.path(), &synth).succeed();
    let report = json::document(report);
    assert_eq!(report["schema"], "unspool.synth");
    let output = report["output"].as_str().unwrap();
    assert!(output.ends_with(".synth.unspool") && Path::new(output).exists());
    let mut functions = report["functions"].as_array().unwrap().iter();
    let through = functions.find(|function| function["name"] == "through");
    let through = through.unwrap();
    assert_eq!(through["instructions"], through["instructions_with_row"]);

    // The compiler's own table of the same function.
    let shown = |words: &str| {
        let text = folder.done(words);
        let rows = text.lines().filter(|line| line.starts_with("  0x"));
        rows.map(str::to_owned).collect::<Vec<_>>()
    };
    let made = shown("show throws --from synth --function main");
    let declared = shown("show throws --function main");
    assert_eq!(made[..2], declared[..2]);

    for (words, said) in [
        ("synth absent", "absent"),
        ("synth throws --emit eh_frame", "--output"),
        ("show throws --from synth --instructions", "--instructions"),
    ] {
        let mut unspool = harness::unspool();
        let output = folder.started(&mut unspool, words).finish().ended_with(2);
        assert!(output.all().contains(said), "{words}: {output}");
    }
}
