//! Unwinds through code that the program has written and registered.

use unspool_testing::command;

use crate::programs::{compile_c, library, run};

#[test]
fn registered_code_is_passed_as_with_libgcc() {
    let program = compile_c("jit.c", &["-Wl,--no-as-needed", "-lgcc_s"]);
    let with_libgcc = run(&program, &["8"], None);
    let (text, _) = &with_libgcc;
    for line in [
        "own 1",
        "enclosing 1 0",
        "nothing: 0 0, found 0 0",
        "section: 1 1, found 1 1",
        "removed: 0 0, found 0 0",
        "once of two: 1 1, found 1 1",
        "both: 0 0, found 0 0",
        "new: 1 1, found 1 1",
        "child: 1 1, found 1 1",
        "failed 0",
    ] {
        assert!(text.lines().any(|other| other == line), "{line}\n{text}");
    }
    assert_eq!(run(&program, &["8"], Some(library())), with_libgcc);
    // An FDE alone, as LLVM's unwinder takes them: the second one is not registered.
    let mut command = command(&program);
    command.env("LLVM_FORM", "1").env("LD_PRELOAD", library());
    let text = xtask::programs::stdout(&mut command).unwrap();
    assert!(text.ends_with("one: 1 0, found 1 0\n"), "{text}");
}

/// Threads that throw through registered code, and children, are not held up or led astray by those
/// that register. (libgcc's children may wait for its lock forever.)
#[test]
fn registrations_do_not_disturb_unwinds() {
    let program = compile_c("jit.c", &["-Wl,--no-as-needed", "-lgcc_s"]);
    let mut command = command(&program);
    command.env("STRESS", "1").env("LD_PRELOAD", library());
    let text = xtask::programs::stdout(&mut command).unwrap();
    let expected = "beside a large section 0\nin children 0\n";
    assert!(text.ends_with(expected), "{text}");
}
