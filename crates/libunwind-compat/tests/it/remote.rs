//! Remote unwinding compared with Debian's libunwind, in the same process.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::programs;
use unspool_testing::{command, packages, tool};

const THEIRS: &str = "/usr/lib/x86_64-linux-gnu/libunwind-x86_64.so.8";
const THEIR_PTRACE: &str = "/usr/lib/x86_64-linux-gnu/libunwind-ptrace.so.0";

/// A stack with a signal frame, frames with and without frame pointers, libc's and the program's
/// entry code: every frame, its preserved registers and their locations, its procedure; uncached
/// and cached.
#[test]
fn a_walk_says_what_libunwind_says() {
    let folder = programs::shared_objects();
    let walk = programs::compile("walk.c");
    let mut command = command(walk);
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
        let mut command = command(&program);
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
    let [ours, theirs] = [ours, theirs].map(|text| programs::without_debug_names(&text));
    for (ours, theirs) in ours.lines().zip(theirs.lines()) {
        assert_eq!(ours, theirs);
    }
    assert_eq!(ours, theirs);
}

/// The same program with its tables in `.debug_frame` has the same code and frames.
#[test]
fn a_traced_process_with_debug_frame_has_all_frames() {
    let folder = programs::shared_objects();
    let functions = |program: PathBuf| {
        let mut command = command(program);
        command
            .arg(folder.join("libunwind-x86_64.so.8"))
            .arg(folder.join("libunwind-ptrace.so.0"));
        let text = programs::stdout(&mut command);
        let names = text.split_whitespace();
        let names = names.filter(|word| word.starts_with("name=0:"));
        names.map(str::to_owned).collect::<Vec<_>>()
    };
    let with_debug_frame = functions(programs::compile_with("ptrace.c", DEBUG_FRAME));
    assert!(with_debug_frame.iter().any(|name| name.contains(":main+")));
    assert_eq!(with_debug_frame, functions(programs::compile("ptrace.c")));
}

/// Each read is a system call. Names are looked up three times for each frame, from files.
#[test]
fn a_traced_process_is_asked_less_than_by_libunwind() {
    let folder = programs::shared_objects();
    let program = programs::compile("ptrace.c");
    let requests = |library: PathBuf, ptrace: PathBuf| {
        let out = programs::scratch("requests");
        let mut strace = tool("strace");
        strace
            .args(["-c", "-e", "trace=ptrace", "-o"])
            .arg(&out)
            .arg(&program)
            .args([library, ptrace]);
        programs::stdout(&mut strace);
        let text = std::fs::read_to_string(&out).unwrap();
        std::fs::remove_file(out).unwrap();
        let line = text.lines().find(|line| line.ends_with(" ptrace")).unwrap();
        let calls = line.split_whitespace().nth(3).unwrap();
        calls.parse::<u32>().unwrap()
    };
    let theirs = [THEIRS, THEIR_PTRACE].map(|path| packages::path(path).unwrap());
    let theirs = requests(theirs[0].clone(), theirs[1].clone());
    let ours = requests(
        folder.join("libunwind-x86_64.so.8"),
        folder.join("libunwind-ptrace.so.0"),
    );
    assert!(ours * 2 <= theirs, "{ours} and {theirs}");
}

/// All threads of a core file, compared with eu-stack: libunwind 1.6 itself cannot read a core file
/// of a program with a separate code segment. gdb's core files omit bytes that are in files.
#[test]
fn a_core_file_looks_as_it_does_to_elfutils() {
    core_file_looks_as_it_does_to_elfutils(&programs::compile("threads.c"));
}

/// Debian's libunwind is built without this.
#[test]
fn a_core_file_of_a_program_with_debug_frame_does() {
    core_file_looks_as_it_does_to_elfutils(&programs::compile_with("threads.c", DEBUG_FRAME));
}

/// Options for a program with tables only in the file's `.debug_frame`.
const DEBUG_FRAME: &[&str] = &["-g", "-fno-asynchronous-unwind-tables", "-gz=none"];

fn core_file_looks_as_it_does_to_elfutils(crash: &Path) {
    let folder = programs::shared_objects();
    let program = programs::compile("coredump.c");
    let core = programs::scratch("core");
    let mut gdb = tool("gdb");
    gdb.args(["-q", "-batch", "-ex", "run", "-ex"])
        .arg(format!("generate-core-file {}", core.display()))
        .arg(crash);
    programs::stdout(&mut gdb);

    let mut eu_stack = tool("eu-stack");
    eu_stack.arg("--core").arg(&core).arg("-e").arg(crash);
    let their_text = programs::stdout(&mut eu_stack);
    let theirs = frames(&their_text);
    let mut command = command(&program);
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
    // The addresses of code in these programs are offsets in the file.
    let place = text.lines().find_map(|line| line.strip_prefix("main+"));
    let (offset, place) = place.unwrap().split_once(" is ").unwrap();
    let (file, file_offset) = place.rsplit_once('+').unwrap();
    let symbols = programs::stdout(tool("nm").arg(crash));
    let main = symbols
        .lines()
        .find_map(|line| line.strip_suffix(" T main"));
    let [main, offset, file_offset] =
        [main.unwrap(), offset, file_offset].map(unspool_testing::hex);
    assert_eq!((main + offset, Path::new(file)), (file_offset, crash));
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

/// The cost of a cached step, without the client's callbacks.
#[test]
fn a_cached_step_takes_a_tenth_of_the_instructions() {
    let folder = programs::shared_objects();
    let walk = programs::compile("walk.c");
    let theirs = instructions(&walk, &packages::path(THEIRS).unwrap());
    let ours = instructions(&walk, &folder.join("libunwind-x86_64.so.8"));
    println!("instructions of a cached step: ours {ours:?}, libunwind's {theirs:?}");
    // The result is less than a tenth; another compiler may take a few more.
    assert!(
        ours.without_callbacks * 9.0 <= theirs.without_callbacks,
        "{ours:?} against {theirs:?}"
    );
    assert!(ours.inclusive < theirs.inclusive);
}

/// It makes no system calls; libunwind makes two.
#[test]
fn a_cached_step_makes_no_system_call() {
    let folder = programs::shared_objects();
    let walk = programs::compile("walk.c");
    let theirs = system_calls(&walk, &packages::path(THEIRS).unwrap());
    let ours = system_calls(&walk, &folder.join("libunwind-x86_64.so.8"));
    assert_eq!(ours, 0);
    assert!(theirs > 10_000, "{theirs}");
}

/// The number of system calls of 199 walks of 37 steps with a complete cache.
fn system_calls(walk: &Path, library: &Path) -> usize {
    let count = |rounds: &str| {
        let log = programs::scratch("strace");
        let mut strace = tool("strace");
        strace
            .arg("-o")
            .arg(&log)
            .arg(walk)
            .arg(rounds)
            .arg(library);
        programs::stdout(&mut strace);
        let lines = std::fs::read_to_string(&log).unwrap().lines().count();
        std::fs::remove_file(log).unwrap();
        lines
    };
    count("200").checked_sub(count("1")).unwrap()
}

/// The instructions of one step.
#[derive(Debug)]
pub(crate) struct Cost {
    without_callbacks: f64,
    pub(crate) inclusive: f64,
}

/// The cost of one step with a complete cache.
pub(crate) fn instructions(walk: &Path, library: &Path) -> Cost {
    let (few, many) = (profile(walk, library, 1), profile(walk, library, 200));
    let steps = f64::from(many.steps - few.steps);
    let cost = |profile: &CallgrindProfile, but_for| f64::from(self_cost(&profile.text, but_for));
    let of_one = |but_for| (cost(&many, but_for) - cost(&few, but_for)) / steps;
    Cost {
        without_callbacks: of_one(walk.to_str()),
        inclusive: of_one(None),
    }
}

/// callgrind's data of `unw_step` in all walks.
struct CallgrindProfile {
    text: String,
    /// The number of steps after the first walks.
    steps: u32,
}

fn profile(walk: &Path, library: &Path, rounds: u32) -> CallgrindProfile {
    let out = programs::scratch("callgrind");
    let mut command = tool("valgrind");
    command
        .args([
            "--quiet",
            "--tool=callgrind",
            "--toggle-collect=_Ux86_64_step",
            "--toggle-collect=_ULx86_64_step",
        ])
        .args(["--compress-strings=no", "--compress-pos=no"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(walk)
        .arg(rounds.to_string())
        .arg(library);
    let stdout = programs::stdout(&mut command);
    let steps = stdout.lines().find_map(|line| line.strip_prefix("steps "));
    let text = std::fs::read_to_string(&out).unwrap();
    std::fs::remove_file(out).unwrap();
    CallgrindProfile {
        text,
        steps: steps.unwrap().parse().unwrap(),
    }
}

/// The sum of the costs in callgrind's format ("Callgrind Format Specification"), except those of
/// one object file.
fn self_cost(profile: &str, but_for: Option<&str>) -> u32 {
    let mut cost = 0;
    let mut is_counted = false;
    let mut lines = profile.lines();
    while let Some(line) = lines.next() {
        if let Some(object) = line.strip_prefix("ob=") {
            is_counted = Some(object) != but_for;
        } else if line.starts_with("calls=") {
            lines.next(); // the cost of the callee, which has lines of its own
        } else if let Some((_, own)) = line.split_once(' ').filter(|_| is_counted)
            && line.starts_with(|first: char| first.is_ascii_digit())
        {
            cost += own.parse::<u32>().unwrap();
        }
    }
    cost
}
