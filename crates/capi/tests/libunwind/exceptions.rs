//! Exceptions and panics on our unwinder, against libgcc's.

use std::path::Path;
use std::process::Command;

use crate::programs;

/// What a program prints, and its exit code.
fn run(program: &Path, preloaded: Option<&Path>) -> (String, Option<i32>) {
    let mut command = Command::new(program);
    if let Some(library) = preloaded {
        command.env("LD_PRELOAD", library);
    }
    let output = command.output().unwrap();
    (
        String::from_utf8(output.stdout).unwrap(),
        output.status.code(),
    )
}

/// Throwing, rethrowing, exception pointers, forced unwinds, exits and cancellation of threads, an
/// exception that nobody catches.
#[test]
fn cxx_exceptions() {
    let folder = programs::shared_objects();
    let ours = folder.join("libunwind.so.8");
    let program = programs::compile_cxx("exceptions.cc");
    let (with_libgcc, code) = run(&program, None);
    assert_eq!(code, Some(3));
    let (first, with_libgcc) = with_libgcc.split_once('\n').unwrap();
    assert!(first.contains("libgcc_s.so.1"), "{first}");
    for line in [
        "caught deep, again",
        "caught second",
        "~cancelled",
        "passing through\nend of stack",
        "libgcc was opened once at most\nterminated",
    ] {
        assert!(with_libgcc.contains(line), "{line}");
    }
    let (with_ours, code) = run(&program, Some(&ours));
    let (first, with_ours) = with_ours.split_once('\n').unwrap();
    assert_eq!(first, format!("unwinder {}", ours.display()));
    assert_eq!(with_ours, with_libgcc);
    assert_eq!(code, Some(3));
}

#[test]
fn rust_panics() {
    let folder = programs::shared_objects();
    let program = programs::compile_rust("panic.rs");
    let (text, code) = run(&program, Some(&folder.join("libunwind.so.8")));
    assert!(text.contains("dropped 3\nSome(\"deep\")\nSome(\"deep\")\n"));
    assert!(text.ends_with("dropped 2\ntrue\ntrue\n"), "{text}");
    assert_eq!((text, code), run(&program, None));
}

/// A landing pad finds the arguments of the call popped.
#[test]
fn arguments_are_popped() {
    let ours = programs::shared_objects().join("libunwind.so.8");
    let program = programs::compile_cxx("arguments.cc");
    let expected: String = (0..5)
        .map(|round| format!("caught {}, 0 bytes lower\n", 100 + round))
        .collect();
    for library in [None, Some(ours.as_path())] {
        assert_eq!(run(&program, library), (expected.clone(), Some(0)));
    }
}
