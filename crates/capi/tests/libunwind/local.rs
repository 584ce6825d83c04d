//! The own stack against Debian's libunwind, in the same process.

use std::process::Command;

use crate::programs;
use xtask::packages;

const THEIRS: &str = "/usr/lib/x86_64-linux-gnu/libunwind.so.8";

/// From a signal's context and from the handler: every frame, its preserved registers and where
/// they are, its procedure and name; and backtraces of many sizes.
#[test]
fn the_own_stack_looks_as_it_does_to_libunwind() {
    let folder = programs::shared_objects();
    let local = programs::compile("local.c");
    let mut command = Command::new(local);
    command
        .arg(packages::path(THEIRS).unwrap())
        .arg(folder.join("libunwind.so.8"));
    let text = programs::stdout(&mut command);
    let walks: Vec<_> = text.split("== library\n").skip(1).collect();
    let [theirs, ours, their_handler, our_handler] = walks[..] else {
        panic!("{} walks", walks.len());
    };
    assert!(theirs.contains("frame 35 ") && theirs.contains("backtrace 42:"));
    assert!(their_handler.contains("interrupted=1"));
    for name in [":recurse+", ":qsort_r+", ":_start+"] {
        assert!(theirs.contains(name), "{name}");
    }
    for (ours, theirs) in [(ours, theirs), (our_handler, their_handler)] {
        for (ours, theirs) in ours.lines().zip(theirs.lines()) {
            assert_eq!(ours, theirs);
        }
        assert_eq!(ours, theirs);
    }
}

/// A library takes the place of another: what was kept of the one is not used for the other.
/// libunwind keeps it.
#[test]
fn a_library_may_be_loaded_in_the_place_of_another() {
    let library = |frame| programs::compile_with("reloaded.c", &["-shared", "-fPIC", frame]);
    let program = programs::compile_with("reload.c", &["-Wl,--no-as-needed", "-lunwind"]);
    let mut command = Command::new(program);
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
