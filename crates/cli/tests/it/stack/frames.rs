//! Programs of all kinds, live and as core files.

use unspool_testing::await_state;

use crate::stack::build::{BuiltProgram, compile};
use crate::stack::compare::{
    ALL, ExpectedStack, VDSO_CLOCK, assert_same_frames, check, check_live, compare, has_functions,
};
use crate::stack::debugger::gdb_process;
use crate::stack::run::{ready, start};
use crate::stack::unspool::{report, report_core, stack};

#[test]
fn cpp_threads() {
    let stacks: [&[&str]; 7] = [
        &["join", "main", "_start"],
        &["wait", "descend", "descend", "descend", "_M_run"],
        &["lock_held"],
        &["catcher"],
        &["~Guard", "thrower", "_M_run"],
        &["on_terminate", "__cxa_throw", "nobody_catches"],
        &["_M_futex_wait_until", "_M_run"],
    ];
    let expected = ExpectedStack {
        stacks: &stacks,
        ..ExpectedStack::default()
    };
    let options: [&[&str]; 6] = [
        &["-O2"],
        &["-O0"],
        &["-O2", "-static"],
        &["-O2", "-static-pie"],
        &["-O1", "-no-pie"],
        &["-O3", "-flto", "-fomit-frame-pointer"],
    ];
    for options in options {
        check(
            &BuiltProgram::build("threads.cc", options),
            &[],
            &ALL,
            expected,
        );
    }
}

#[test]
fn signal_handlers() {
    let stacks: [&[&str]; 6] = [
        &["on_signal", "interrupted_in_call"],
        &["on_signal", "raises", "below_raise"],
        &["on_signal", "outer_handler", "raises", "on_other_stack"],
        &[
            "on_signal",
            "outer_handler",
            "faults",
            "at_first_instruction",
        ],
        &["on_signal", "null_call"],
        &["on_signal", VDSO_CLOCK, "in_vdso"],
    ];
    // The call through a null pointer. AArch64's vDSO has no table: each trampoline is recognized,
    // and the clock followed to its end.
    let mut guesses = vec!["bad-call"];
    if cfg!(target_arch = "aarch64") {
        guesses.extend(["signal-trampoline"; 8]);
        guesses.push("synthesized");
    }
    let expected = ExpectedStack {
        stacks: &stacks,
        guesses: &guesses,
        ..ExpectedStack::default()
    };
    for options in [&["-O2"] as &[&str], &["-O1", "-static"], &["-O0"]] {
        check(
            &BuiltProgram::build("signals.c", options),
            &[],
            &ALL,
            expected,
        );
    }
}

#[test]
fn rust_threads() {
    let stacks: [&[&str]; 6] = [
        &["join", "main", "_start"],
        &["wait", "descend", "descend", "call_once", "thread_start"],
        &["wait", "descend", "descend", "call_once"],
        &["park", "through_closures"],
        &["sleep", "drop", "panics"],
        &["park", "panic_fmt"],
    ];
    let expected = ExpectedStack {
        stacks: &stacks,
        ..ExpectedStack::default()
    };
    for options in [
        &["-O"],
        &["-Copt-level=0"],
        &["-Csymbol-mangling-version=v0"],
    ] {
        check(
            &BuiltProgram::build("threads.rs", options),
            &[],
            &ALL,
            expected,
        );
    }
}

#[test]
fn blocked_in_system_calls() {
    let expected = ExpectedStack {
        stacks: &[
            &[
                "block", "keeps", "keeps", "keeps", "keeps", "keeps", "keeps", "run",
            ],
            &["epoll_wait", "block", "keeps", "run"],
            &["main", "_start"],
        ],
        ..ExpectedStack::default()
    };
    for options in [
        &["-O2"] as &[&str],
        &["-O2", "-no-pie"],
        &["-O1", "-static"],
        &["-O2", "-static-pie"],
    ] {
        check(
            &BuiltProgram::build("blocked.c", options),
            &[],
            &ALL,
            expected,
        );
    }
}

/// Code that a program has moved to memory without a file is still its own. eu-stack takes it for
/// foreign code.
#[test]
fn moved_text() {
    let options: [&[&str]; 4] = [
        &["-O2"],
        &["-O2", "-no-pie"],
        &["-O2", "-Wl,-z,noseparate-code"],
        &["-O2", "-static"],
    ];
    for options in options {
        let program = BuiltProgram::build("moves_text.c", options);
        for way in ["text", "all"] {
            let running = ready(&program, &[way]);
            let live = report(&program.directory, &[&running.pid().to_string()]);
            await_state(running.pid(), 'S');
            let core = program.directory.path().join("gdb.core");
            compare(&live, &gdb_process(running.pid(), &core), way);
            let stack = live.threads.values().next().unwrap();
            assert!(stack.is_root && has_functions(stack, &["waits", "main", "_start"]));
            assert_eq!(stack.guesses(), [""; 0]);
            for core in [core, running.dump_core(&program.directory)] {
                let recorded = report_core(&program.directory, &core, program.path());
                assert_same_frames(&live, &recorded);
            }
        }
    }
    let program = BuiltProgram::build("moves_text.c", &["-O2"]);
    let running = ready(&program, &["changed"]);
    let printed = stack(&program.directory, &[&running.pid().to_string()]);
    let differs = "  <the code in memory differs from the file>\n";
    let lines: Vec<&str> = printed.out.split_inclusive('\n').collect();
    let line = |name: &str| *lines.iter().find(|line| line.contains(name)).unwrap();
    assert!(line("  waits+0x").ends_with(differs), "{}", printed.out);
    assert!(!line("  main+0x").contains(differs), "{}", printed.out);
    assert!(
        printed.out.ends_with("  complete: outermost frame\n"),
        "{}",
        printed.out
    );
}

/// Without symbols, no names are expected.
#[test]
fn stripped() {
    let program = BuiltProgram::build("blocked.c", &["-O2", "-s"]);
    check(&program, &[], &ALL, ExpectedStack::default());
    let program = BuiltProgram::build("threads.cc", &["-O2", "-s", "-static-pie"]);
    check(&program, &[], &ALL, ExpectedStack::default());
}

#[test]
fn below_library_code() {
    let program = BuiltProgram::build("places.c", &["-O2", "-rdynamic"]);
    let library = compile(
        &program.directory,
        "constructor.c",
        &["-O2", "-shared", "-fPIC"],
    );
    let expected = ExpectedStack {
        stacks: &[
            &["compare", "in_qsort"],
            &["construct", "dlopen", "in_constructor"],
            &["coroutine"],
            &["on_signal", "coroutine"],
            &["destroy"],
            &["at_exit", "exit", "_start"],
        ],
        ..ExpectedStack::default()
    };
    check(&program, &[library.to_str().unwrap()], &ALL, expected);
}

#[test]
fn after_fork_and_exec() {
    let program = BuiltProgram::build("family.c", &["-O2"]);
    let mut running = start(&program, &[]);
    let mut ids = Vec::new();
    // Each of the three writes a line, in any order.
    for _ in 0..3 {
        let line = running.line();
        if line != "ready" {
            ids = line.split(' ').map(|id| id.parse().unwrap()).collect();
        }
    }
    let core = |name: &str| program.directory.path().join(name);
    for (pid, functions) in [
        (ids[0], &["after_exec", "main", "_start"]),
        (ids[1], &["after_fork", "after_fork", "main"]),
    ] {
        await_state(pid, 'S');
        let expected = ExpectedStack {
            stacks: &[functions],
            ..ExpectedStack::default()
        };
        check_live(&program, pid, &core("child.core"), expected);
    }
    let expected = ExpectedStack {
        stacks: &[&["main", "_start"]],
        ..ExpectedStack::default()
    };
    check_live(&program, running.pid(), &core("parent.core"), expected);
}

#[test]
fn deep_recursion() {
    let program = BuiltProgram::build("recursion.c", &["-O2"]);
    let expected = ExpectedStack {
        stacks: &[&["small", "variable", "large", "small", "main", "_start"]],
        ..ExpectedStack::default()
    };
    check(&program, &["200"], &ALL, expected);
    check(&program, &["5000"], &ALL, expected);
}

#[test]
fn realigned_stacks() {
    let functions = [
        "innermost",
        "aligned",
        "aligned_and_variable",
        "variadic",
        "main",
    ];
    let expected = ExpectedStack {
        stacks: &[&functions],
        ..ExpectedStack::default()
    };
    let all_realigned: &[&str] = if cfg!(target_arch = "x86_64") {
        &["-O2", "-mstackrealign", "-mpreferred-stack-boundary=6"]
    } else {
        &["-O2", "-mbranch-protection=standard"]
    };
    for options in [&["-O2"] as &[&str], &["-O0"], all_realigned] {
        check(
            &BuiltProgram::build("realigned.c", options),
            &[],
            &ALL,
            expected,
        );
    }
}

#[test]
fn parts_that_are_cold() {
    let program = BuiltProgram::build("cold.c", &["-O2", "-freorder-blocks-and-partition"]);
    let expected = ExpectedStack {
        stacks: &[
            &["rare", "parted.cold", "main"],
            &["rare", "parted.cold", "main"],
        ],
        ..ExpectedStack::default()
    };
    check(&program, &[], &ALL, expected);
}
