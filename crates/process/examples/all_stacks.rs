//! All stacks of a process, with names: `cargo run -p unspool-process --example all_stacks PID`.
#![allow(clippy::print_stdout, reason = "a program")]

use unspool_process::snapshot_unwinder::{SnapshotUnwinder, WalkDetail};
use unspool_process::{Process, Snapshot as _, Store};
use unspool_symbols::{NameDetail, Symbolizer};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pid = std::env::args().nth(1).ok_or("usage: all_stacks PID")?;
    let process = Process::attach(pid.parse()?)?; // stopped until it is dropped
    let store = Store::from_environment();
    let unwinder = SnapshotUnwinder::new(&process, &store);
    let symbolizer = Symbolizer::from_environment(NameDetail::Functions);
    for thread in process.threads() {
        println!("thread {}:", thread.tid);
        let stack = unwinder.walk(thread, 1000, WalkDetail::Frames);
        let frames = stack.iter().flat_map(|stack| &stack.frames);
        let frames: Vec<_> = frames.map(|f| (f.code, unwinder.locate(f.code))).collect();
        let files = frames
            .iter()
            .filter_map(|(_, at)| Some(at.as_ref()?.in_file()));
        let names = symbolizer.look_up_in_files(files, None);
        for (code, at) in &frames {
            let symbol = at.as_ref().and_then(|at| names.get(at.in_file())?.symbol);
            println!("  {} {}", code.address(), symbol.map_or("??", |s| s.name));
        }
    }
    Ok(())
}
