//! The variables of a process's first thread: `cargo run -p unspool-display-values --example
//! variables PID`.
#![allow(clippy::print_stdout, reason = "a program")]

use std::error::Error;

use unspool_display_values::{DebugInfo, DebugInfoFiles, ValueQuery};
use unspool_process::snapshot_unwinder::{SnapshotUnwinder, WalkDetail};
use unspool_process::{Process, Snapshot, Store};

fn main() -> Result<(), Box<dyn Error>> {
    let pid = std::env::args().nth(1).ok_or("usage: variables PID")?;
    let process = Process::attach(pid.parse()?)?; // stopped until it is dropped
    let store = Store::from_environment();
    let unwinder = SnapshotUnwinder::new(&process, &store);
    let thread = process.threads().first().ok_or("no thread")?;
    let stack = unwinder.walk(thread, 100, WalkDetail::Registers);
    let stack = stack.ok_or("no stack")?;
    let files = DebugInfoFiles::open(&unwinder, [&stack].into_iter(), None);
    let query = ValueQuery {
        snapshot: &process,
        unwinder: &unwinder,
        memory: process.memory(),
        tables: None,
        debug_info: Some(&DebugInfo::read(&files)),
        with_locals: true,
        with_strings: false,
    };
    for frame in query.frames(&stack, 0..stack.frames.len()) {
        println!("{}", frame.function.as_deref().unwrap_or("??"));
        for variable in frame.locals {
            match variable.current {
                Ok(value) => println!("    {} = {}", variable.name, value.text),
                Err(why) => println!("    {}: {why}", variable.name),
            }
        }
    }
    Ok(())
}
