//! `unspool record` and `unspool report`, of programs whose files are elsewhere, or gone, when the report is
//! made.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Does something to its own file, and then works in `inner`, which `outer` calls, until an alarm.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <unistd.h>
volatile unsigned long sink;
__attribute__((noinline)) void INNER(void) { for (;;) sink++; }
__attribute__((noinline)) void OUTER(void) { INNER(); sink++; }
int main(int count, char **words) {
    alarm(1);
    if (count == 2 && remove(words[1]) != 0) return 1;
    if (count == 3 && rename(words[2], words[1]) != 0) return 1;
    OUTER();
    return 0;
}
"#;

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("record")
        .join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn run(command: &mut Command, package: &str) -> Output {
    let output = command.output();
    output.unwrap_or_else(|error| {
        panic!("cannot run {command:?} ({error}): install the Debian package {package}")
    })
}

/// Builds the program, with these names for its two functions.
fn build(path: &Path, [outer, inner]: [&str; 2], flags: &[&str]) {
    let names = [format!("-DOUTER={outer}"), format!("-DINNER={inner}")];
    let names = names.each_ref().map(String::as_str);
    compile(PROGRAM, path, &[flags, &names].concat());
}

fn compile(text: &str, path: &Path, flags: &[&str]) {
    let source = path.with_extension("c");
    fs::write(&source, text).unwrap();
    let mut gcc = Command::new("gcc");
    gcc.args(["-O1", "-fno-inline"]).args(flags);
    let built = run(gcc.arg("-o").arg(path).arg(&source), "gcc");
    assert!(built.status.success(), "{built:?}");
}

fn unspool() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unspool"));
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("record_cache");
    command
        .env("XDG_CACHE_HOME", cache)
        .env_remove("DEBUGINFOD_URLS");
    command
}

/// Records a command; yields the profile, and what was said.
fn record(folder: &Path, command: &[&str]) -> (PathBuf, String) {
    let profile = folder.join("unspool.prof");
    let mut record = unspool();
    record.args(["record", "-e", "cpu-clock", "-o"]);
    let output = record.arg(&profile).arg("--").args(command).output();
    let said = String::from_utf8(output.unwrap().stderr).unwrap();
    assert!(profile.exists(), "{said}");
    (profile, said)
}

/// The folded stacks of a profile, and what was said beside them.
fn report(profile: &Path) -> (String, String) {
    let mut report = unspool();
    let output = report.args(["report", "--as", "folded"]).arg(profile);
    let output = output.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr))
}

/// Nearly all of the program's time was spent in `inner`, called by `outer`, and no stack of it has a function of
/// another program, or one without a name.
fn assert_stacks(folded: &str, [outer, inner]: [&str; 2]) {
    let lines = || folded.lines().filter(|line| line.starts_with("program;"));
    let weight = |line: &str| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
    // Between `_start` and `main` are functions of glibc, which have names only with its debug information.
    let is_meant = |line: &&str| {
        let (stack, _) = line.rsplit_once(' ').unwrap();
        stack.contains(";_start;") && stack.ends_with(&format!(";main;{outer};{inner}"))
    };
    let there: u64 = lines().filter(is_meant).map(weight).sum();
    let all: u64 = lines().map(weight).sum();
    assert!(all > 0 && there * 10 > all * 8, "{folded}");
    for foreign in ["foreign_", "[program]", "[unknown]"] {
        assert!(lines().all(|line| !line.contains(foreign)), "{folded}");
    }
}

const OURS: [&str; 2] = ["our_outer", "our_inner"];
const FOREIGN: [&str; 2] = ["foreign_outer", "foreign_inner"];
/// Without build IDs a file is known by its inode, and later by its hash.
const BUILD_IDS: [&str; 2] = ["-Wl,--build-id=sha1", "-Wl,--build-id=none"];

#[test]
fn a_program_that_removes_itself() {
    for flag in BUILD_IDS {
        let folder = folder("removed");
        let program = folder.join("program");
        build(&program, OURS, &[flag]);
        let path = program.to_str().unwrap();
        let (profile, said) = record(&folder, &[path, path]);
        assert!(!program.exists(), "{said}");
        let (folded, said) = report(&profile);
        assert_stacks(&folded, OURS);
        assert!(
            said.contains("program: what was recorded is not there"),
            "{said}"
        );
        // Nor is another file at its place taken for it.
        build(&program, FOREIGN, &[flag]);
        let (folded, _) = report(&profile);
        assert_stacks(&folded, OURS);
    }
}

#[test]
fn a_program_that_is_replaced() {
    for flag in BUILD_IDS {
        let folder = folder("replaced");
        let [program, other] = ["program", "other"].map(|name| folder.join(name));
        build(&program, OURS, &[flag]);
        build(&other, FOREIGN, &[flag]);
        let [path, by] = [&program, &other].map(|path| path.to_str().unwrap());
        let (profile, said) = record(&folder, &[path, path, by]);
        assert!(!other.exists(), "{said}");
        let (folded, _) = report(&profile);
        assert_stacks(&folded, OURS);
    }
}

/// A program that was there when it was recorded, and is another when the report is made.
#[test]
fn a_program_that_is_built_anew() {
    for flag in BUILD_IDS {
        let folder = folder("anew");
        let program = folder.join("program");
        build(&program, OURS, &[flag]);
        let (profile, _) = record(&folder, &[program.to_str().unwrap()]);
        assert_stacks(&report(&profile).0, OURS);
        build(&program, FOREIGN, &[flag]);
        let (folded, said) = report(&profile);
        assert!(!folded.contains("foreign_"), "{folded}");
        assert!(folded.contains(";[program];[program]"), "{folded}");
        assert!(said.contains("it is not used"), "{said}");
    }
}

/// Puts a program into a file system that only it sees, where another is outside; once at a path of the same
/// name, once as the root.
const CONTAINER: &str = r#"
set -e
root=$1 program=$2
mount -t tmpfs none "$root"
cp "$program" "$root/program"
case $3 in
    mount) exec "$root/program" ;;
    root) exec chroot "$root" /program ;;
esac
"#;

#[test]
fn a_program_in_a_container() {
    for kind in ["mount", "root"] {
        for flag in BUILD_IDS {
            let folder = folder("container");
            let root = folder.join("root");
            fs::create_dir(&root).unwrap();
            let [inside, outside] = [folder.join("inside"), root.join("program")];
            build(&inside, OURS, &["-static", flag]);
            build(&outside, FOREIGN, &["-static", flag]);
            let [root, inside] = [&root, &inside].map(|path| path.to_str().unwrap());
            let command = [
                "unshare",
                "--map-root-user",
                "--mount",
                "sh",
                "-c",
                CONTAINER,
                "start",
            ];
            let (profile, _) = record(&folder, &[&command[..], &[root, inside, kind]].concat());
            assert_stacks(&report(&profile).0, OURS);
        }
    }
}
