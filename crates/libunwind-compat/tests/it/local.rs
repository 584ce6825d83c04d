//! The own stack compared with Debian's libunwind, in the same process.

use std::path::Path;

use crate::programs;
use crate::remote::instructions;
use unspool_testing::{NOBODY, UserFolder, command, packages, tool};

const THEIRS: &str = "/usr/lib/x86_64-linux-gnu/libunwind.so.8";

/// From a signal's context and from the handler: every frame, its preserved registers and their
/// locations, its procedure and name; and backtraces of many sizes.
#[test]
fn the_own_stack_looks_as_it_does_to_libunwind() {
    let folder = programs::shared_objects();
    let local = programs::compile("local.c");
    let mut command = command(local);
    command
        .arg(packages::path(THEIRS).unwrap())
        .arg(folder.join("libunwind.so.8"));
    let all = programs::stdout(&mut command);
    let text = programs::without_debug_names(&all);
    let walks: Vec<_> = text.split("== library\n").skip(1).collect();
    let [theirs, ours, their_handler, our_handler] = walks[..] else {
        panic!("{} walks", walks.len());
    };
    assert!(theirs.contains("frame 35 ") && theirs.contains("backtrace 42:"));
    assert!(their_handler.contains("interrupted=1"));
    for name in [":recurse+", ":qsort_r+", ":_start+"] {
        assert!(all.contains(name), "{name}");
    }
    for (ours, theirs) in [(ours, theirs), (our_handler, their_handler)] {
        for (ours, theirs) in ours.lines().zip(theirs.lines()) {
            assert_eq!(ours, theirs);
        }
        assert_eq!(ours, theirs);
    }
}

/// All rows of each frame's procedure, while the callback asks for other procedures, and the
/// callers by the frames' rows.
#[test]
fn rows_are_those_that_libunwind_has() {
    let program = programs::compile_with("states.c", &["-Wl,--no-as-needed", "-l:libunwind.so.8"]);
    let theirs = programs::stdout(&mut command(&program));
    let mut command = command(program);
    command.env("LD_LIBRARY_PATH", programs::shared_objects());
    assert_eq!(programs::stdout(&mut command), theirs);
    assert!(theirs.lines().count() > 30 && !theirs.contains("astray"));
}

/// A library replaces another: the cached rules of the old one are not used for the new one.
/// libunwind uses them.
#[test]
fn a_library_may_be_loaded_in_the_place_of_another() {
    let library = |frame| programs::compile_with("reloaded.c", &["-shared", "-fPIC", frame]);
    let program = programs::compile_with("reload.c", &["-Wl,--no-as-needed", "-l:libunwind.so.8"]);
    let mut command = command(program);
    command
        .env("LD_LIBRARY_PATH", programs::shared_objects())
        .args([library("-DFRAME=64"), library("-DFRAME=96")]);
    let text = programs::stdout(&mut command);
    let mut steps: Vec<_> = text.lines().collect();
    assert_eq!(steps.len(), 4);
    steps.dedup();
    assert_eq!(steps.len(), 1, "{text}");
    // `walk`, `call`, `main`, and the C library's and the program's entry code.
    assert_eq!(steps, ["5 steps"]);
}

/// A coroutine's stack lies below the thread's, with a hole between them. A corrupt frame points
/// into the hole: a walk ends there.
#[test]
fn a_walk_does_not_fall_into_a_hole_between_stacks() {
    let program =
        programs::compile_with("coroutine.c", &["-Wl,--no-as-needed", "-l:libunwind.so.8"]);
    let mut command = command(program);
    command.env("LD_LIBRARY_PATH", programs::shared_objects());
    let text = programs::stdout(&mut command);
    let expected = [
        // `walk`, `thread`, and two functions of the C library; the innermost frame is `steps`.
        ("thread", [4, 4]),
        // `walk`, `run`, and the C library's start of coroutines.
        ("sound", [3, 3]),
        // `walk`, `corrupt`, `call_corrupt`: the next would be found by its frame pointer.
        ("corrupt", [3, 3]),
        ("thread", [4, 4]),
    ];
    let expected = expected.map(|(what, [steps, addresses])| {
        format!("{what}: {steps} steps, {addresses} addresses\n").repeat(2)
    });
    assert_eq!(text, expected.concat());
}

/// As in libunwind's own `Ltest-mem-validate`.
#[test]
fn a_walk_ends_at_a_page_of_the_stack_that_cannot_be_read() {
    let program =
        programs::compile_with("unreadable.c", &["-Wl,--no-as-needed", "-l:libunwind.so.8"]);
    let mut command = command(program);
    command.env("LD_LIBRARY_PATH", programs::shared_objects());
    let text = programs::stdout(&mut command);
    // To `descend` nine times and to `with_page`, the caller of which is unknown. Then from `walk`
    // to `main`, two functions of the C library and the program's entry code.
    let expected = [
        "10 steps, then an error; 11 addresses",
        "4 steps, then none; 5 addresses",
    ];
    assert_eq!(text.lines().collect::<Vec<_>>(), expected);
}

/// Walks from a thread, from a signal's context, and from the main thread. Any allocation ends the
/// program, and so does any system call except a thread's first queries about its stack.
#[test]
fn walks_allocate_nothing_and_leave_the_system_alone() {
    let options = ["-Wl,-z,now,--no-as-needed", "-l:libunwind.so.8"];
    let program = programs::compile_with("sealed.c", &options);
    let mut command = command(program);
    command.env("LD_LIBRARY_PATH", programs::shared_objects());
    let text = programs::stdout(&mut command);
    let lines: Vec<_> = text.lines().collect();
    let expected = [
        // `walk_sealed`, `with_alloca` 7 times, `recurse` 4 times, `thread`, the C library's two.
        "15 steps, then 0; 16 addresses",
        // One less, since `raise` and its callees replace `walk_sealed`; and the handler's own
        // frames.
        "16 steps, then 0; 21 addresses",
        // From `main` there are two frames of the C library and the program's.
        "17 steps, then 0; 18 addresses",
    ];
    let expected =
        expected.map(|walk| ["first", "cold", "hot"].map(|when| format!("{when}: {walk}")));
    assert_eq!(lines, expected.concat());
}

/// Functions that libunwind's manual pages call signal-safe are safe, also while the allocator is
/// interrupted. (Debian's libunwind allocates in name look-ups.)
#[test]
fn names_are_found_in_handlers() {
    let options = ["-Wl,--no-as-needed", "-l:libunwind.so.8"];
    let program = programs::compile_with("signalled_names.c", &options);
    let mut command = command(program);
    command.env("LD_LIBRARY_PATH", programs::shared_objects());
    let text = programs::stdout(&mut command);
    assert_eq!(text, "named in 300 of 300 walks, 0 wrong\n");
}

/// The maximum stack use of each function is in a table of `docs/libunwind.md`: for its first call,
/// and later.
#[test]
fn functions_take_no_more_of_a_stack_than_is_documented() {
    let options = ["-Wl,-z,now,--no-as-needed", "-l:libunwind.so.8"];
    let program = programs::compile_cxx_with("stack.cc", &options);
    let run = |arguments: &[&str]| {
        let mut command = command(&program);
        command
            .args(arguments)
            .env("LD_LIBRARY_PATH", programs::shared_objects());
        xtask::programs::stdout(command.env("LD_BIND_NOW", "1"))
    };
    if let Err(error) = xtask::programs::check_stack_table("libunwind.md", run) {
        panic!("{error}");
    }
}

/// The cost of a step with a cached rule.
#[test]
fn a_hot_step_takes_a_sixth_of_the_instructions() {
    let folder = programs::shared_objects();
    let steps = programs::compile("steps.c");
    let theirs = instructions(&steps, &packages::path(THEIRS).unwrap());
    let ours = instructions(&steps, &folder.join("libunwind.so.8"));
    assert!(
        ours.inclusive * 6.0 <= theirs.inclusive,
        "{ours:?} against {theirs:?}"
    );
}

/// The first backtrace of a process has less than half of libunwind's page faults. The stacks of
/// signal handlers are small: `SIGSTKSZ` is 8 KiB, and the kernel takes up to 3 of them for a
/// frame.
#[test]
fn walks_fit_on_the_stack_of_a_signal_handler() {
    let program = programs::compile("small.c");
    let walks = |library: &Path| {
        let text = programs::stdout(command(&program).arg(library));
        let walks = text.lines().map(|line| {
            let (frames, bytes) = line.split_once(' ').unwrap();
            (
                frames.parse::<u32>().unwrap(),
                bytes.parse::<u32>().unwrap(),
            )
        });
        walks.collect::<Vec<_>>()
    };
    let theirs = walks(&packages::path(THEIRS).unwrap());
    let ours = walks(&programs::shared_objects().join("libunwind.so.8"));
    // The first walk looks rows up.
    for ((theirs, ours), most) in theirs.iter().zip(&ours).zip([5 << 10, 3 << 10]) {
        assert!(ours.0 > 10 && ours.0 == theirs.0, "{ours:?} {theirs:?}");
        assert!(ours.1 <= most, "{ours:?}, of {most}; {theirs:?}");
    }
    assert_eq!(ours.len(), 2);
}

#[test]
fn a_first_backtrace_takes_half_of_the_page_faults() {
    let program = programs::compile_with("faults.c", &["-Wl,--no-as-needed", "-l:libunwind.so.8"]);
    let first = |library: &Path| {
        let mut command = command(&program);
        command.env("LD_LIBRARY_PATH", library.parent().unwrap());
        let text = programs::stdout(&mut command);
        let mut numbers = text.split_whitespace().map(|n| n.parse::<u32>().unwrap());
        (numbers.next().unwrap(), numbers.next().unwrap())
    };
    let (theirs, their_frames) = first(&packages::path(THEIRS).unwrap());
    let (ours, frames) = first(&programs::shared_objects().join("libunwind.so.8"));
    assert_eq!(frames, their_frames);
    assert!(frames > 64 && ours * 2 <= theirs, "{ours} and {theirs}");
}

/// The cost of backtraces is printed if the environment requests it, as for other walks of the own
/// stack.
#[test]
fn backtraces_are_counted_if_asked() {
    let program = programs::compile_with("faults.c", &["-Wl,--no-as-needed", "-l:libunwind.so.8"]);
    let run = |wanted| {
        let mut command = command(&program);
        let command = command.env("LD_LIBRARY_PATH", programs::shared_objects());
        command.env("UNSPOOL_STATS", wanted).output().unwrap()
    };
    let quiet = run("0");
    assert!(quiet.status.success() && quiet.stderr.is_empty());
    let counted = run("1");
    let frames = String::from_utf8(counted.stdout).unwrap();
    let (_, frames) = frames.trim_end().split_once(' ').unwrap();
    let text = String::from_utf8(counted.stderr).unwrap();
    let expected = format!("unspool: 1 walks, {frames} frames, 0 of them guessed, 0 of them rem");
    assert!(
        text.starts_with(&expected) && text.lines().count() == 1,
        "{text}"
    );
}

/// A setuid program ignores the environment.
#[test]
#[ignore = "needs root: cargo xtask root"]
fn a_setuid_program_ignores_the_environment() {
    let folder = UserFolder::new(0);
    let library = programs::shared_objects().join("libunwind.so.8");
    folder.copy(&library, "libunwind.so.8", 0o755);
    let rpath = format!("-Wl,-rpath,{}", folder.display());
    let options = ["-Wl,--no-as-needed", "-l:libunwind.so.8", &rpath];
    let built = programs::compile_with("faults.c", &options);
    let errors = |mode: u32| {
        let program = folder.copy(&built, &format!("program-{mode:o}"), mode);
        let mut command = tool("setpriv");
        let nobody = NOBODY.to_string();
        command.args(["--reuid", &nobody, "--regid", &nobody, "--clear-groups"]);
        let output = command
            .arg(program)
            .env("UNSPOOL_STATS", "1")
            .output()
            .unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(errors(0o755).starts_with("unspool: 1 walks, "));
    assert_eq!(errors(0o4755), "");
}

/// A program built for libunwind gets more memory for rules by its environment.
#[test]
fn the_environment_says_how_much_memory_rules_have() {
    let program = programs::compile_with("faults.c", &["-Wl,--no-as-needed", "-l:libunwind.so.8"]);
    for (value, expected) in [("64K", 64), ("4M", 4096), ("5M", 1024)] {
        let mut command = command(&program);
        command.env("LD_LIBRARY_PATH", programs::shared_objects());
        command
            .env("UNSPOOL_RULES", value)
            .env("UNSPOOL_STATS", "1");
        let output = command.output().unwrap();
        assert!(output.status.success());
        let text = String::from_utf8(output.stderr).unwrap();
        let expected = format!(", {expected} KiB for rules\n");
        assert!(text.ends_with(&expected), "{value}: {text}");
    }
}

/// Backtraces use their thread's memo of the last one, and so do handlers that interrupt them.
#[test]
fn backtraces_remember_nothing_wrong() {
    let program = programs::compile_with("memos.c", &["-Wl,--no-as-needed", "-l:libunwind.so.8"]);
    let mut command = command(program);
    command.env("LD_LIBRARY_PATH", programs::shared_objects());
    assert_eq!(programs::stdout(&mut command), "all alike\n");
}

/// Registered generated code is unwound as in libunwind, by steps and in backtraces. We know its
/// name, too.
fn registered_code_is_walked_through(options: &[&str]) {
    let options = [&["-Wl,--no-as-needed"], options, &["-l:libunwind.so.8"]].concat();
    let program = programs::compile_with("registered.c", &options);
    let theirs = programs::stdout(&mut command(&program));
    let mut command = command(program);
    let command = command.env("LD_LIBRARY_PATH", programs::shared_objects());
    let ours = programs::stdout(command);
    assert_eq!(ours.lines().count(), theirs.lines().count());
    let mut made = 0;
    for (ours, theirs) in ours.lines().zip(theirs.lines()) {
        match ours.strip_prefix("0:made+7 ") {
            Some(ours) => {
                assert!(ours.starts_with("rbx=1234 0 start=0 size=13 personality=1111000 "));
                assert!(theirs.ends_with(ours), "{ours} and {theirs}");
                made += 1;
            }
            // The C library's function that calls `main` is static.
            None if programs::libunwind_minor_version() >= 8
                && theirs.contains(":__libc_start_") =>
            {
                assert_eq!(ours.rsplit(' ').next(), theirs.rsplit(' ').next());
            }
            None => assert_eq!(ours, theirs),
        }
    }
    // Entries with absolute and with relative pointers, for code at its original address and
    // elsewhere.
    assert_eq!(made, 4);
}

#[test]
fn registered_code_is_known() {
    registered_code_is_walked_through(&["-DUNW_LOCAL_ONLY"]);
}

/// `libunwind-x86_64.so.8` unwinds through code registered with `libunwind.so.8`.
#[test]
fn registered_code_is_known_to_the_remote_library() {
    registered_code_is_walked_through(&["-l:libunwind-x86_64.so.8"]);
}

/// Threads may register at the same time. A child forked meanwhile has a complete list, and is not
/// blocked by a thread that does not exist in it.
#[test]
fn threads_register_at_the_same_time() {
    let program = programs::compile_with(
        "registering.c",
        &["-Wl,--no-as-needed", "-l:libunwind.so.8"],
    );
    let mut command = command(program);
    command.env("LD_LIBRARY_PATH", programs::shared_objects());
    let text = programs::stdout(&mut command);
    // Each of 4 threads registers 50,000 and cancels half; the rest is cancelled at the end.
    let expected = "all: 100001, 300001 changes\nlasting: 1, 400001 changes\n";
    assert_eq!(text, expected);
}
