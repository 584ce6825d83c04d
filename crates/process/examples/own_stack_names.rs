//! The stack of the own thread, with names: `cargo run -p unspool-process --example
//! own_stack_names`.
#![allow(clippy::print_stdout, reason = "a program")]

use unspool_process::snapshot_unwinder::{FrameLocation, SnapshotUnwinder};
use unspool_process::{OwnProcess, Store};
use unspool_rows::CodeAddr;
use unspool_symbols::{NameDetail, Symbolizer};
use unspool_unwind::local::{self, RuntimeAddr};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut addresses = [RuntimeAddr(0); 64];
    let walk = local::walk(&mut addresses);
    // The walk may be in a signal handler; names need files, and are looked up later.
    let (process, store) = (OwnProcess::new()?, Store::from_environment());
    let unwinder = SnapshotUnwinder::new(&process, &store);
    let addresses = addresses.iter().take(walk.frames);
    let frames = addresses.map(|addr| unwinder.locate(CodeAddr::Return(*addr)));
    let frames: Vec<_> = frames.collect();
    let symbolizer = Symbolizer::from_environment(NameDetail::Functions);
    let located = frames.iter().flatten().map(FrameLocation::in_file);
    let names = symbolizer.look_up_in_files(located, None);
    for frame in &frames {
        let symbol = frame
            .as_ref()
            .and_then(|at| names.get(at.in_file())?.symbol);
        println!("{}", symbol.map_or("??", |symbol| symbol.name));
    }
    println!("{}, {} guessed", walk.end, walk.guesses);
    Ok(())
}
