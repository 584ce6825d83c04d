//! Exceptions and panics on our unwinder, compared with libgcc's and next to it.

use std::path::Path;

use unspool_testing::command;

use crate::programs;

/// A program's output and its exit code.
fn run(program: &Path, preloaded: Option<&Path>) -> (String, Option<i32>) {
    run_with(program, &[], preloaded)
}

/// The same with arguments.
fn run_with(program: &Path, arguments: &[&str], preloaded: Option<&Path>) -> (String, Option<i32>) {
    let mut command = command(program);
    command.args(arguments);
    if let Some(library) = preloaded {
        command.env("LD_PRELOAD", library);
    }
    let output = command.output().unwrap();
    (
        String::from_utf8(output.stdout).unwrap(),
        output.status.code(),
    )
}

/// Throwing, rethrowing, exception pointers, forced unwinds, exits and cancellation of threads, and
/// an uncaught exception.
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
        "terminated",
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

/// A plugin linked with `-static-libgcc -static-libstdc++` has its own unwinder. Its landing pads
/// call our `_Unwind_Resume`, and its contexts reach our functions. If it hides its libstdc++, our
/// contexts reach its functions.
#[test]
fn a_static_libgcc_beside_ours() {
    const CASES: [&str; 8] = [
        "inside", "host", "out", "through", "in", "nested", "cancel", "exit",
    ];
    let ours = programs::shared_objects().join("libunwind.so.8");
    let host = programs::compile_cxx("static_plugin_host.cc");
    let plugin = |options: &[&str]| {
        let always = ["-shared", "-fPIC", "-static-libgcc", "-static-libstdc++"];
        programs::compile_cxx_with("static_plugin.cc", &[&always, options].concat())
    };
    let shared = plugin(&[]);
    let hidden = plugin(&["-Wl,--exclude-libs,ALL"]);
    let run = |plugin: &Path, ways: &[&str], library| {
        let arguments = [&[plugin.to_str().unwrap()], ways].concat();
        run_with(&host, &arguments, library)
    };
    // Each case first in a process of its own, and all in one.
    for ways in CASES
        .each_ref()
        .map(std::slice::from_ref)
        .into_iter()
        .chain([&CASES[..]])
    {
        let with_libgcc = run(&shared, ways, None);
        assert_eq!(with_libgcc.1, Some(0), "{with_libgcc:?}");
        assert_eq!(run(&shared, ways, Some(&ours)), with_libgcc);
        // With libgcc's unwinder this ends in abort: the two do not know each other's registers.
        assert_eq!(run(&hidden, ways, Some(&ours)), with_libgcc);
    }
}

/// There is no system call, not even in the first throw of a process or thread, or on a coroutine's
/// stack. 8 KiB of stack suffice for all of it. (With libgcc the first throw of a process is
/// killed.)
#[test]
fn a_throw_where_no_system_call_is_left() {
    let ours = programs::shared_objects().join("libunwind.so.8");
    let program = programs::compile_cxx_with("sealed_throw.cc", &["-Wl,-z,now"]);
    for place in ["main", "thread", "fibre", "fibre-in-module", "small-fibre"] {
        for seal in ["strict", "filter"] {
            let mut command = command(&program);
            command.args([place, seal]).env("LD_PRELOAD", &ours);
            // The loader's lazy binding takes more stack than our code.
            let text = programs::stdout(command.env("LD_BIND_NOW", "1"));
            assert_eq!(text, "deep\n".repeat(3), "{place} {seal}");
        }
    }
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
