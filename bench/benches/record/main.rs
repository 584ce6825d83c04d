//! Compares profilers: the cost of a sample, complete stacks, lost samples, file sizes.
//!
//! `cargo bench -p unspool-bench --bench record -- --help`.
#![expect(clippy::print_stdout, reason = "a measurement prints")]

mod options;
mod programs;
mod samply;
mod scenarios;
mod script;
mod tools;

use options::RecordBenchOptions;
use programs::Programs;

fn main() -> anyhow::Result<()> {
    let Some(options) = RecordBenchOptions::parse()? else {
        println!("{}", options::HELP);
        return Ok(());
    };
    let programs = Programs::build()?;
    for (name, scenario) in scenarios::ALL {
        if options.has(name) {
            scenario(&programs, &options)?;
        }
    }
    Ok(())
}
