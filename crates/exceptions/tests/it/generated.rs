//! Unwinds through code that the program has written and registered.

use unspool_testing::{command, packages};

use crate::programs::{compile_c, library, run};

#[test]
fn registered_code_is_passed_as_with_libgcc() {
    let program = compile_c("jit.c", &["-Wl,--no-as-needed", "-lgcc_s"]);
    let arguments: &[&str] = if is_before_13() {
        &["8"]
    } else {
        &["8", "some"]
    };
    let with_libgcc = run(&program, arguments, None);
    let with_ours = run(&program, &["8"], Some(library()));
    let (text, _) = &with_ours;
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
    assert_eq!(run(&program, arguments, Some(library())), with_libgcc);
    // An FDE alone, as LLVM's unwinder takes them: the second one is not registered.
    let mut command = command(&program);
    command.env("LLVM_FORM", "1").env("LD_PRELOAD", library());
    let text = xtask::programs::stdout(&mut command).unwrap();
    assert!(text.ends_with("one: 1 0, found 1 0\n"), "{text}");
}

/// Whether libgcc is older than 13, by the versions of its symbols.
fn is_before_13() -> bool {
    let path = packages::path("/lib/x86_64-linux-gnu/libgcc_s.so.1").unwrap();
    let bytes = std::fs::read(path).unwrap();
    !bytes.windows(10).any(|version| version == b"GCC_13.0.0")
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
