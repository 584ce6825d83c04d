//! Tables made of code alone, against the tables that compilers left.
//!
//! `cargo bench -p unspool-bench --bench synth -- [FILE…]`. Without files: the big ELF files of this machine. The
//! file's own table is not read for the synthesis, only compared with its result: for each row, at its first
//! instruction.
#![expect(clippy::print_stdout, reason = "a measurement prints")]

use std::path::PathBuf;
use std::time::Instant;

use unspool_ir::{Abi, CfaRule, Register, RegisterRule, Row, Table, Vaddr};
use unspool_module::ElfFile;
use unspool_recover::synthesize;
use unspool_unwind::tables::{self, From};

/// So many differences are shown of each file.
const SHOWN: usize = 20;

fn main() -> anyhow::Result<()> {
    println!(
        "file | rows | CFA there | by the same register | CFA different | registers the same | s, one thread"
    );
    for path in &unspool_bench::big_files() {
        measure(path)?;
    }
    Ok(())
}

/// How the rows of two tables compare.
#[derive(Default)]
struct Counts {
    rows: u64,
    /// The code has a row, and its CFA is not another.
    there: u64,
    /// It names the same register and offset.
    same: u64,
    /// It names the same register and another offset.
    different: u64,
    /// The rules of registers that calls preserve are the same.
    registers: u64,
}

fn measure(path: &PathBuf) -> anyhow::Result<()> {
    let file = ElfFile::open(path)?;
    let declared = tables::read(&file, From::Auto)?.table;
    let started = Instant::now();
    let synthesis = synthesize(&file, &[])?;
    let seconds = started.elapsed().as_secs_f64();
    let (counts, differences) = compare(&declared, &synthesis.table);
    let percent = |count: u64| unspool_bench::share(count, counts.rows) * 100.0;
    println!(
        "{} | {} | {:.3} % | {:.3} % | {} | {:.3} % | {seconds:.2}",
        path.display(),
        counts.rows,
        percent(counts.there),
        percent(counts.same),
        counts.different,
        percent(counts.registers),
    );
    for at in differences.iter().take(SHOWN) {
        println!("  {at}");
    }
    Ok(())
}

fn compare(declared: &Table, synthesized: &Table) -> (Counts, Vec<String>) {
    let mut counts = Counts::default();
    let mut differences = Vec::new();
    let mut found = synthesized.spans().peekable();
    let preserved = preserved(declared.abi());
    for span in declared.spans() {
        let Some(row) = declared.row(span.row) else {
            continue;
        };
        while found.next_if(|found| found.end <= span.start).is_some() {}
        counts.rows += 1;
        let at = span.start;
        let here = found.peek().filter(|found| found.start <= at);
        let Some(other) = here.and_then(|found| synthesized.row(found.row)) else {
            continue;
        };
        match (row.cfa, other.cfa) {
            (a, b) if a == b => {
                counts.same += 1;
                counts.there += 1;
            }
            (
                CfaRule::RegisterOffset { register: a, .. },
                CfaRule::RegisterOffset { register: b, .. },
            ) if a == b => {
                counts.different += 1;
                differences.push(difference(at, &row, &other));
            }
            _ => counts.there += 1,
        }
        let same = |register: &Register| rule(&row, *register) == rule(&other, *register);
        counts.registers += u64::from(preserved.iter().all(same));
    }
    (counts, differences)
}

fn preserved(abi: Abi) -> Vec<Register> {
    let machine = unspool_synth::Machine::of(abi);
    let preserved = machine.map_or(&[][..], |machine| machine.facts().preserved);
    preserved
        .iter()
        .map(|number| Register((*number).into()))
        .collect()
}

fn rule<'r>(row: &Row<'r>, register: Register) -> Option<RegisterRule<'r>> {
    row.rule(register)
        .filter(|rule| *rule != RegisterRule::SameValue)
}

fn difference(at: Vaddr, declared: &Row<'_>, found: &Row<'_>) -> String {
    format!("{at}: declared {:?}, found {:?}", declared.cfa, found.cfa)
}
