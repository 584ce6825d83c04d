//! The stacks of running processes.

use unspool_process::snapshot_unwinder::WalkDetail;
use unspool_process::{Process, ProcessError, StackOptions, Store, walk_stacks};
use unspool_rows::Register;
use unspool_testing::RunningProgram;
use unspool_unwind::End;

use crate::programs::{compile, start};

fn waiting(source: &str, arguments: &[&str]) -> RunningProgram {
    let mut running = start(&compile(source, &[]), arguments);
    assert_eq!(running.line(), "ready");
    running.await_state('S');
    running
}

/// 20,000 frames of `deep.c` take more than the 2 MiB of two copies of the first size.
#[test]
fn a_long_stack_is_copied_again() {
    let running = waiting("deep.c", &["20000"]);
    let store = Store::new(None, None, None);
    let all = StackOptions::default();
    let walked = walk_stacks(running.pid(), &store, &all, |stacks| {
        assert!(stacks.is_reliable());
        let stopped = stacks.resume().unwrap();
        let stack = stacks.stacks().next().unwrap();
        (stack.frames.len(), stack.end, stack.missing, stopped)
    });
    let (frames, end, missing, stopped) = walked.unwrap();
    assert!(frames > 20_000, "{frames}");
    assert_eq!((end, missing), (End::Outermost, None));
    assert!(!stopped.is_zero());

    let ten = StackOptions {
        max_frames: 10,
        ..all
    };
    let walked = walk_stacks(running.pid(), &store, &ten, |stacks| {
        let stack = stacks.stacks().next().unwrap();
        (stack.frames.len(), stack.end, stacks.is_reliable())
    });
    assert_eq!(walked.unwrap(), (10, End::Limit, false));
}

/// A register saved elsewhere than on the stack.
#[test]
fn memory_elsewhere_is_copied_too() {
    let running = waiting("far_register.c", &[]);
    let options = StackOptions {
        detail: WalkDetail::Registers,
        ..StackOptions::default()
    };
    let store = Store::new(None, None, None);
    let rbx = walk_stacks(running.pid(), &store, &options, |stacks| {
        let frames = &stacks.stacks().next().unwrap().frames;
        let registers = frames[frames.len() - 4].registers.as_ref().unwrap();
        registers.get(Register(3))
    });
    assert_eq!(rbx.unwrap(), Some(0x1234));
}

#[test]
fn a_process_stays_stopped_on_request_only() {
    let running = waiting("deep.c", &["10"]);
    let store = Store::new(None, None, None);
    for stays_stopped in [false, true] {
        let options = StackOptions {
            stays_stopped,
            ..StackOptions::default()
        };
        let is_traced = || {
            let attached = Process::attach(running.pid());
            matches!(attached, Err(ProcessError::AlreadyTraced { .. }))
        };
        let walked = walk_stacks(running.pid(), &store, &options, |stacks| {
            let before = is_traced();
            stacks.resume();
            (before, is_traced())
        });
        assert_eq!(walked.unwrap(), (stays_stopped, false));
    }
}
