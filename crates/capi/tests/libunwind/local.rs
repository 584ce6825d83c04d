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
