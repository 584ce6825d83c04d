//! Compares the rows of the C library with a run of a command: `cargo run -p unspool-single-step
//! --example step_command [COMMAND...]`.
#![allow(clippy::print_stdout, reason = "a program")]

use std::error::Error;
use std::time::Duration;

use unspool_single_step::{RowSource, StepRequest, run};
use unspool_table_store::TableSource;

fn main() -> Result<(), Box<dyn Error>> {
    let mut command: Vec<_> = std::env::args_os().skip(1).collect();
    if command.is_empty() {
        command = vec!["/bin/true".into()];
    }
    let report = run(&StepRequest {
        command,
        functions: Vec::new(),
        modules: vec!["libc".into()],
        rows: RowSource::Table(TableSource::Auto),
        visits: 1,
        time_limit: Duration::from_secs(60),
    })?;
    for module in report.by_module() {
        let counts = module.counts();
        println!(
            "{}: {} functions called, {} rows executed",
            module.path.display(),
            counts.entered,
            counts.executed
        );
        for finding in module.findings {
            println!("    {:?}", finding.finding);
        }
    }
    Ok(())
}
