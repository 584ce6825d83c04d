//! `--tables native`: recordings unwound by native tables have the same stacks as by compiled
//! tables.
//!
//! Live processes and cores are compared with gdb in `stack`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use unspool_testing::{Finish as _, TextOutput, tool};

use crate::harness;
use crate::json;

/// Works half of the time deep in a signal handler; a comparison below libc's `qsort` sends the
/// signals.
const PROGRAM: &str = r#"
#include <signal.h>
#include <stdlib.h>
static volatile unsigned long sink;
__attribute__((noinline)) static void work(void) { for (int i = 0; i < 20000; i++) sink++; }
__attribute__((noinline)) static void in_handler(int depth) {
    if (depth) in_handler(depth - 1);
    else for (int i = 0; i < 20; i++) work();
    sink++;
}
static void on_signal(int number) { (void)number; in_handler(7); }
static int compare(const void *a, const void *b) {
    static int calls;
    work();
    if (++calls % 20 == 0) raise(SIGPROF);
    return *(const int *)a - *(const int *)b;
}
int main(void) {
    int numbers[512];
    signal(SIGPROF, on_signal);
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 512; i++) numbers[i] = i * 7919 % 512;
        qsort(numbers, 512, sizeof *numbers, compare);
    }
    return 0;
}
"#;

fn run(command: &mut Command) -> TextOutput {
    command.finish().ended_with(0)
}

fn build(folder: &Path) -> PathBuf {
    let (source, program) = (folder.join("signals.c"), folder.join("signals"));
    fs::write(&source, PROGRAM).unwrap();
    // Debian package gcc.
    let mut gcc = tool("gcc");
    run(gcc
        .args(["-O2", "-g", "-fno-optimize-sibling-calls", "-o"])
        .args([&program, &source]));
    program
}

fn unspool(folder: &Path, arguments: &[&str]) -> Command {
    harness::unspool_in(folder, arguments)
}

fn text(command: &mut Command) -> String {
    command.succeed()
}

/// The number of native tables in the cache.
fn kept(folder: &Path) -> usize {
    let Ok(entries) = fs::read_dir(folder.join("cache/unspool")) else {
        return 0;
    };
    let files = entries.map(Result::unwrap);
    let files = files.filter(|entry| entry.file_type().unwrap().is_file()); // Not the links.
    let names = files.map(|entry| entry.file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(".native.so")).count()
}

#[test]
fn a_recording_has_the_same_stacks() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let program = build(folder);
    // Debian package linux-perf.
    let mut perf = tool("perf");
    perf.args(["record", "-q", "-e", "cpu-clock:u", "-F", "999"])
        .args(["--call-graph", "dwarf,8192", "-o"])
        .arg(folder.join("perf.data"))
        .arg("--")
        .arg(program);
    run(&mut perf);
    let tables = text(&mut unspool(folder, &["script", "perf.data"]));
    assert_eq!(kept(folder), 0);
    let both = ["in_handler+", "on_signal+", "compare+", "main+"];
    let mut stacks = tables.split("\n\n");
    assert!(
        stacks.any(|stack| both.iter().all(|name| stack.contains(name))),
        "{tables}"
    );
    let code = text(&mut unspool(
        folder,
        &["script", "--tables", "native", "perf.data"],
    ));
    assert!(kept(folder) >= 2);
    assert_eq!(code, tables);
    let variable = text(unspool(folder, &["script", "perf.data"]).env("UNSPOOL_TABLES", "native"));
    assert_eq!(variable, tables);

    let folded = ["report", "--as", "folded", "perf.data"];
    let tables = text(&mut unspool(folder, &folded));
    let code = text(unspool(folder, &folded).env("UNSPOOL_TABLES", "native"));
    assert_eq!(code, tables);
}

#[test]
fn recordings_have_complete_stacks() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let program = build(folder);
    // Missing tables may be compiled too late for a short run.
    let libc = unspool_testing::packages::path("/lib/x86_64-linux-gnu/libc.so.6").unwrap();
    for file in [&libc, &program] {
        run(unspool(folder, &["compile", "--as", "native"]).arg(file));
    }
    assert_eq!(kept(folder), 2);
    let arguments = ["record", "--tables", "native", "--format", "json", "--"];
    let mut record = unspool(folder, &arguments);
    let output = run(record.arg(program));
    let errors = output.err;
    let report = json::document(errors.lines().last().unwrap());
    let completeness = &report["completeness"];
    assert!(completeness["stacks"].as_u64() > Some(20), "{report}");
    assert_eq!(completeness["complete"], completeness["stacks"], "{report}");
    let folded = text(&mut unspool(
        folder,
        &["report", "--as", "folded", "unspool.prof"],
    ));
    let both = ["main", "compare", "on_signal", "in_handler"];
    let stack = folded
        .lines()
        .find(|line| both.iter().all(|name| line.contains(name)));
    assert!(stack.is_some(), "{folded}");
}

#[test]
fn another_word_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = unspool(folder.path(), &["stack", "1"]);
    let output = command.env("UNSPOOL_TABLES", "quick").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(
        errors.contains("UNSPOOL_TABLES is \"quick\": it can be compact or native"),
        "{errors}"
    );
}
