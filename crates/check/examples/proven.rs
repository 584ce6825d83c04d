//! Counts a file's rows that its machine code proves or refutes: `cargo run -p unspool-check
//! --example proven [FILE]`.
#![allow(clippy::print_stdout, reason = "a program")]

use std::error::Error;
use std::num::NonZeroUsize;

use unspool_check::{CheckReport, CheckSubject, CodeOrigin, DeclaredTable};
use unspool_elf::ElfFile;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1);
    let file = ElfFile::open(path.unwrap_or_else(|| "/bin/true".into()))?;
    let declarations = DeclaredTable::read(&file)?;
    let mut subject = CheckSubject::new(&file, &declarations, CodeOrigin::from_file(&file))?;
    let report = CheckReport::from_subject(&mut subject, NonZeroUsize::MIN, |_, _| {});
    let totals = report.totals;
    println!("{} rows, {} proven", totals.rows, totals.proven);
    for finding in report.findings {
        println!(
            "{}: {}: declared {}, is {}",
            finding.address,
            finding.code.summary(),
            finding.declared,
            finding.computed
        );
    }
    Ok(())
}
