//! Programs of all kinds, live and as core files.

use crate::build::{Program, compile};
use crate::compare::{ALL, Expected, check, check_running};
use crate::run::Running;

#[test]
fn cpp_threads() {
    let stacks: [&[&str]; 7] = [
        &["join", "main", "_start"],
        &[
            "wait",
            "descend",
            "descend",
            "descend",
            "_M_run",
            "start_thread",
        ],
        &["lock_held", "start_thread"],
        &["catcher", "start_thread"],
        &["pause", "~Guard", "thrower", "_M_run"],
        &["pause", "on_terminate", "__cxa_throw", "nobody_catches"],
        &["_M_futex_wait_until", "_M_run"],
    ];
    let expected = Expected {
        stacks: &stacks,
        ..Expected::default()
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
        check(&Program::build("threads.cc", options), &[], &ALL, expected);
    }
}

#[test]
fn signal_handlers() {
    let stacks: [&[&str]; 5] = [
        &["pause", "on_signal", "interrupted_in_call", "start_thread"],
        &[
            "pause",
            "on_signal",
            "raises",
            "below_raise",
            "start_thread",
        ],
        &[
            "pause",
            "on_signal",
            "outer_handler",
            "raises",
            "on_other_stack",
        ],
        &[
            "pause",
            "on_signal",
            "outer_handler",
            "faults",
            "at_first_instruction",
        ],
        &["pause", "on_signal", "null_call", "start_thread"],
    ];
    let expected = Expected {
        stacks: &stacks,
        ..Expected::default()
    };
    check(&Program::build("signals.c", &["-O2"]), &[], &ALL, expected);
}
