//! All stacks of a process, with names: `cargo run -p unspool-process --example all_stacks PID`.
#![allow(clippy::print_stdout, reason = "a program")]

use unspool_process::snapshot_unwinder::FrameLocation;
use unspool_process::{ProcessStacks, StackOptions, Store, walk_stacks};
use unspool_symbols::{NameDetail, Symbolizer};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pid = std::env::args().nth(1).ok_or("usage: all_stacks PID")?;
    let store = Store::from_environment();
    walk_stacks(pid.parse()?, &store, &StackOptions::default(), print)?;
    Ok(())
}

fn print(stacks: &ProcessStacks<'_>) {
    let symbolizer = Symbolizer::from_environment(NameDetail::Functions);
    for thread in &stacks.threads {
        println!("thread {}:", thread.thread.tid);
        let frames = thread.stack.iter().flat_map(|stack| &stack.frames);
        let frames = frames.map(|frame| (frame.code, stacks.unwinder.locate(frame.code)));
        let frames: Vec<_> = frames.collect();
        let located = frames.iter().filter_map(|(_, at)| at.as_ref());
        let names = symbolizer.look_up_in_files(located.map(FrameLocation::in_file), None);
        for (code, at) in &frames {
            let symbol = at.as_ref().and_then(|at| names.get(at.in_file())?.symbol);
            println!("  {} {}", code.address(), symbol.map_or("??", |s| s.name));
        }
    }
}
