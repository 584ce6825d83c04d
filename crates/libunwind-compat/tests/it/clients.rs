//! Debian's unmodified programs that use libunwind, run with our libraries: they report the same
//! stacks as with Debian's.

use std::path::Path;

use crate::programs;
use xtask::clients::{ALL, DEBIAN};

/// With at least that many stacks and frames.
fn same_stacks(name: &str, stacks: u64, frames: u64) {
    let client = ALL.iter().find(|client| client.name == name).unwrap();
    let folder = programs::scratch("client");
    std::fs::create_dir(&folder).unwrap();
    let program = client.program(&folder).unwrap();
    let look = |libraries| client.stacks(&program, libraries, 8).unwrap();
    let (theirs, ours) = (look(Path::new(DEBIAN)), look(programs::shared_objects()));
    assert!(
        theirs.count() >= stacks && theirs.frames() >= frames,
        "{theirs:?}"
    );
    assert_eq!(ours.without(&theirs), theirs.without(&ours));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn strace() {
    same_stacks("strace -k", 18, 1000);
}

#[test]
fn heaptrack() {
    same_stacks("heaptrack", 100, 4000);
}

#[test]
fn cpu_profiler_of_gperftools() {
    same_stacks("gperftools, CPU", 18, 1000);
}

#[test]
fn heap_profiler_of_gperftools() {
    same_stacks("gperftools, heap", 100, 2000);
}

#[test]
fn fatal_log_message_of_glog() {
    same_stacks("glog, LOG(FATAL)", 1, 20);
}

#[test]
fn failure_signal_handler_of_glog() {
    same_stacks("glog, a signal", 1, 20);
}
