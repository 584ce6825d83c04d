//! Records a command: `cargo run -p unspool-sampler --example record_command [COMMAND...]`.
#![allow(clippy::print_stdout, reason = "a program")]

use std::error::Error;
use std::process::Command;

use unspool_profile::{Meta, Profile};
use unspool_sampler::{RecordOptions, RecordTarget, Recording};
use unspool_table_store::Store;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    let mut command = match words.split_first() {
        Some((program, arguments)) => {
            let mut command = Command::new(program);
            command.args(arguments);
            command
        }
        None => Command::new("true"),
    };
    command.stdout(std::io::stderr());
    let target = RecordTarget::Command(command);
    let recording = Recording::prepare(target, RecordOptions::default())?;
    let mut out = Vec::new(); // or a file
    let summary = recording.run(&mut out, Store::from_environment(), Meta::default(), |_| {})?;
    let profile = Profile::read(out.as_slice())?;
    println!(
        "{} samples of {} processes in {:?}",
        profile.samples().len(),
        profile.processes().len(),
        summary.elapsed
    );
    Ok(())
}
