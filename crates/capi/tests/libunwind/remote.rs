//! Remote unwinding against Debian's libunwind, in the same process.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::programs;
use xtask::packages;

const THEIRS: &str = "/usr/lib/x86_64-linux-gnu/libunwind-x86_64.so.8";
const THEIR_PTRACE: &str = "/usr/lib/x86_64-linux-gnu/libunwind-ptrace.so.0";

/// A stack with a signal frame, frames with and without frame pointers, libc's and the program's
/// entry code: every frame, its preserved registers and where they are, its procedure; uncached
/// and cached.
#[test]
fn a_walk_says_what_libunwind_says() {
    let folder = programs::shared_objects();
    let walk = programs::compile("walk.c");
    let mut command = Command::new(walk);
    command
        .arg("0")
        .arg(packages::path(THEIRS).unwrap())
        .arg(folder.join("libunwind-x86_64.so.8"));
    let text = programs::stdout(&mut command);
    let mut walks = text.split("== library\n").skip(1);
    let (theirs, ours) = (walks.next().unwrap(), walks.next().unwrap());
    assert!(
        theirs
            .lines()
            .filter(|line| line.starts_with("frame 35 "))
            .count()
            == 3
    );
    assert!(theirs.contains("interrupted=1"));
    for (ours, theirs) in ours.lines().zip(theirs.lines()) {
        assert_eq!(ours, theirs);
    }
    assert_eq!(ours, theirs);
}

/// A traced process: its frames, their names, its registers.
#[test]
fn a_traced_process_looks_as_it_does_to_libunwind() {
    let folder = programs::shared_objects();
    let program = programs::compile("ptrace.c");
    let look = |library: PathBuf, ptrace: PathBuf| {
        let mut command = Command::new(&program);
        command.env("LD_LIBRARY_PATH", library.parent().unwrap());
        programs::stdout(command.args([library, ptrace]))
    };
    let theirs = [THEIRS, THEIR_PTRACE].map(|path| packages::path(path).unwrap());
    let theirs = look(theirs[0].clone(), theirs[1].clone());
    let ours = look(
        folder.join("libunwind-x86_64.so.8"),
        folder.join("libunwind-ptrace.so.0"),
    );
    for name in ["on_signal+", "descend+", "compare+", "qsort_r+", "_start+"] {
        assert!(theirs.contains(name), "{name}");
    }
    assert!(theirs.contains("signal=1"));
    for (ours, theirs) in ours.lines().zip(theirs.lines()) {
        assert_eq!(ours, theirs);
    }
    assert_eq!(ours, theirs);
}

/// All threads of a core file, against eu-stack: libunwind 1.6 itself reads no core file of a program
/// whose code is in a segment of its own. gdb's core files leave out what is in files.
#[test]
fn a_core_file_looks_as_it_does_to_elfutils() {
    let folder = programs::shared_objects();
    let (program, crash) = (
        programs::compile("coredump.c"),
        programs::compile("threads.c"),
    );
    let core = programs::scratch("core");
    let mut gdb = Command::new(packages::path("/usr/bin/gdb").unwrap());
    gdb.args(["-q", "-batch", "-ex", "run", "-ex"])
        .arg(format!("generate-core-file {}", core.display()))
        .arg(&crash);
    programs::stdout(&mut gdb);

    let mut eu_stack = Command::new(packages::path("/usr/bin/eu-stack").unwrap());
    eu_stack.arg("--core").arg(&core).arg("-e").arg(&crash);
    let their_text = programs::stdout(&mut eu_stack);
    let theirs = frames(&their_text);
    let mut command = Command::new(&program);
    command
        .env("LD_LIBRARY_PATH", folder)
        .arg(folder.join("libunwind-x86_64.so.8"))
        .arg(folder.join("libunwind-coredump.so.0"))
        .arg(&core);
    let text = programs::stdout(&mut command);
    assert_eq!(frames(&text), theirs);
    assert_eq!(theirs.len(), 2);
    assert!(theirs.values().any(|frames| frames.len() > 12));
    for name in [" compare\n", " descend\n", " main\n", " qsort_r\n"] {
        assert!(text.contains(name), "{name} in {text}");
    }
    std::fs::remove_file(core).unwrap();
}

/// The code addresses of each thread's frames, in eu-stack's format.
fn frames(text: &str) -> BTreeMap<&str, Vec<&str>> {
    let mut threads: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut thread = "";
    for line in text.lines() {
        if line.starts_with("TID ") {
            thread = line;
        } else if line.starts_with('#') {
            let address = line.split_whitespace().nth(1).unwrap();
            threads.entry(thread).or_default().push(address);
        }
    }
    threads
}

/// What a cached step costs, without the client's callbacks.
#[test]
fn a_cached_step_takes_a_quarter_of_the_instructions() {
    let folder = programs::shared_objects();
    let walk = programs::compile("walk.c");
    let theirs = instructions(&walk, &packages::path(THEIRS).unwrap());
    let ours = instructions(&walk, &folder.join("libunwind-x86_64.so.8"));
    assert!(ours * 4.0 <= theirs, "{ours} against {theirs}");
}

/// The instructions of one step that finds everything in the cache.
fn instructions(walk: &Path, library: &Path) -> f64 {
    let (few, fewer_steps) = count(walk, library, 1);
    let (many, steps) = count(walk, library, 200);
    f64::from(many - few) / f64::from(steps - fewer_steps)
}

/// The instructions of `unw_step` in all walks, without those of the program itself, and the
/// number of steps after the first walks.
fn count(walk: &Path, library: &Path, rounds: u32) -> (u32, u32) {
    let out = programs::scratch("callgrind");
    let mut command = Command::new(packages::path("/usr/bin/valgrind").unwrap());
    command
        .args([
            "--quiet",
            "--tool=callgrind",
            "--toggle-collect=_Ux86_64_step",
        ])
        .args(["--compress-strings=no", "--compress-pos=no"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(walk)
        .arg(rounds.to_string())
        .arg(library);
    let text = programs::stdout(&mut command);
    let steps = text.lines().find_map(|line| line.strip_prefix("steps "));
    let profile = std::fs::read_to_string(&out).unwrap();
    std::fs::remove_file(out).unwrap();
    let own = walk.to_str().unwrap();
    (self_cost(&profile, own), steps.unwrap().parse().unwrap())
}

/// Adds up the costs in callgrind's format ("Callgrind Format Specification") but for those of one
/// object file.
fn self_cost(profile: &str, but_for: &str) -> u32 {
    let mut cost = 0;
    let mut is_counted = false;
    let mut lines = profile.lines();
    while let Some(line) = lines.next() {
        if let Some(object) = line.strip_prefix("ob=") {
            is_counted = object != but_for;
        } else if line.starts_with("calls=") {
            lines.next(); // the cost of what is called, which has lines of its own
        } else if let Some((_, own)) = line.split_once(' ').filter(|_| is_counted)
            && line.starts_with(|first: char| first.is_ascii_digit())
        {
            cost += own.parse::<u32>().unwrap();
        }
    }
    cost
}
