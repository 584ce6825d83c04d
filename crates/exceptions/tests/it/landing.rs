//! Where exceptions, panics and forced unwinds land.

use std::path::Path;

use unspool_testing::command;

use crate::programs::{compile_cxx, compile_cxx_by, compile_rust, libraries, library, run};

/// Throwing, rethrowing, exception pointers, forced unwinds, exits and cancellation of threads, and
/// an uncaught exception.
#[test]
fn cxx_exceptions() {
    let program = compile_cxx("exceptions.cc", &["-rdynamic"]);
    let (with_libgcc, code) = run(&program, &[], None);
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
    for ours in libraries() {
        let (with_ours, code) = run(&program, &[], Some(ours));
        let (first, with_ours) = with_ours.split_once('\n').unwrap();
        assert_eq!(first, format!("unwinder {}", ours.display()));
        assert_eq!(with_ours, with_libgcc);
        assert_eq!(code, Some(3));
    }
}

#[test]
fn rust_panics() {
    let program = compile_rust("panic.rs");
    let with_libgcc = run(&program, &[], None);
    assert!(with_libgcc.0.ends_with("dropped 2\ntrue\ntrue\n"));
    for ours in libraries() {
        let (text, code) = run(&program, &[], Some(ours));
        assert!(text.contains("dropped 3\nSome(\"deep\")\nSome(\"deep\")\n"));
        assert_eq!((text, code), with_libgcc);
    }
}

/// A plugin linked with `-static-libgcc -static-libstdc++` has its own unwinder. Its landing pads
/// call our `_Unwind_Resume`, and its contexts reach our functions. If it hides its libstdc++, our
/// contexts reach its functions.
#[test]
fn a_static_libgcc_beside_ours() {
    const CASES: [&str; 8] = [
        "inside", "host", "out", "through", "in", "nested", "cancel", "exit",
    ];
    let host = compile_cxx("static_plugin_host.cc", &["-rdynamic"]);
    let plugin = |options: &[&str]| {
        let always = ["-shared", "-fPIC", "-static-libgcc", "-static-libstdc++"];
        compile_cxx("static_plugin.cc", &[&always, options].concat())
    };
    let shared = plugin(&[]);
    let hidden = plugin(&["-Wl,--exclude-libs,ALL"]);
    let run = |plugin: &Path, ways: &[&str], library| {
        let arguments = [&[plugin.to_str().unwrap()], ways].concat();
        run(&host, &arguments, library)
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
        for ours in libraries() {
            assert_eq!(run(&shared, ways, Some(ours)), with_libgcc);
            // With libgcc's unwinder this ends in abort: the two do not know each other's
            // registers.
            assert_eq!(run(&hidden, ways, Some(ours)), with_libgcc);
        }
    }
}

/// There is no system call, not even in the first throw of a process or thread, or on a coroutine's
/// stack. 8 KiB of stack suffice for all of it. (With libgcc the first throw of a process is
/// killed.)
#[test]
fn a_throw_where_no_system_call_is_left() {
    let program = compile_cxx("sealed_throw.cc", &["-Wl,-z,now"]);
    for ours in libraries() {
        for place in ["main", "thread", "fibre", "fibre-in-module", "small-fibre"] {
            for seal in ["strict", "filter"] {
                let mut command = command(&program);
                command.args([place, seal]).env("LD_PRELOAD", ours);
                // The loader's lazy binding takes more stack than our code.
                let text = xtask::programs::stdout(command.env("LD_BIND_NOW", "1")).unwrap();
                assert_eq!(text, "deep\n".repeat(3), "{place} {seal}");
            }
        }
    }
}

/// A landing pad finds the arguments of the call popped.
#[test]
fn arguments_are_popped() {
    let program = compile_cxx("arguments.cc", &["-rdynamic"]);
    let expected: String = (0..5)
        .map(|round| format!("caught {}, 0 bytes lower\n", 100 + round))
        .collect();
    let [first, second] = libraries().each_ref().map(|path| Some(path.as_path()));
    for library in [None, first, second] {
        assert_eq!(run(&program, &[], library), (expected.clone(), Some(0)));
    }
}

/// Frames of all kinds, by both compilers and with all their forms of frames.
#[test]
fn frames_of_all_kinds_are_passed() {
    let always = [
        "-fnon-call-exceptions",
        "-fasynchronous-unwind-tables",
        "-Wno-psabi",
    ];
    for (compiler, options) in [
        ("g++", "-O0"),
        ("g++", "-O1 -fcf-protection=full"),
        ("g++", "-O2 -fstack-clash-protection"),
        ("g++", "-O3 -fno-omit-frame-pointer"),
        ("g++", "-O2 -mstackrealign -maccumulate-outgoing-args"),
        ("g++", "-O2 -no-pie -fno-pic"),
        ("clang++", "-O0"),
        ("clang++", "-O2 -fcf-protection=full"),
        ("clang++", "-O3 -fno-omit-frame-pointer -mstackrealign"),
    ] {
        let options: Vec<_> = options.split(' ').chain(always).collect();
        let program = compile_cxx_by(compiler, "frames.cc", &options);
        // clang does not expect exceptions of instructions that are not calls.
        let arguments: &[&str] = if compiler == "g++" { &["signals"] } else { &[] };
        let with_libgcc = run(&program, arguments, None);
        let (text, code) = &with_libgcc;
        assert_eq!(*code, Some(0), "{compiler} {options:?}: {text}");
        for line in [
            "registers kept by 64 of 64",
            "~alloca\n~realigned\n~large\ncaught 7",
            "caught 7 in a coroutine",
            "threads caught 12800",
        ] {
            assert!(
                text.contains(line),
                "{compiler} {options:?}: {line}: {text}"
            );
        }
        for ours in libraries() {
            let with_ours = run(&program, arguments, Some(ours));
            assert_eq!(with_ours, with_libgcc, "{compiler} {options:?}");
        }
    }
}

/// A plugin takes the place of another that was unloaded: its frames are its own.
#[test]
fn a_plugin_in_another_s_place_has_its_own_landing_pads() {
    let host = compile_cxx("reload.cc", &[]);
    let plugins = ["1", "2"].map(|version| {
        let version = format!("-DVERSION={version}");
        compile_cxx("plugin.cc", &["-shared", "-fPIC", &version])
    });
    let paths = plugins.each_ref().map(|path| path.to_str().unwrap());
    let expected = "right 604, nearly always at one address\n".to_owned();
    for library in [None, Some(library())] {
        assert_eq!(run(&host, &paths, library), (expected.clone(), Some(0)));
    }
}
