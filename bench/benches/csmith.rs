//! Random C programs: checks their tables against their code. Rows synthesized from their code are
//! compared with their tables and with single steps of a run.
//!
//! `cargo bench -p unspool-bench --bench csmith -- [N [COMPILER]]`: N programs (10) of csmith
//! (Debian packages csmith, libcsmith-dev), each compiled by gcc and clang with -O0 to -O3. Rows
//! are synthesized with symbols and, for a stripped copy, without. A wrong result is reported with
//! its program, which `csmith --seed SEED` generates again.
#![expect(clippy::print_stdout, reason = "a measurement prints")]

use std::fs::File;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use unspool_bench::Scratch;
use unspool_bench::synthesis_quality::{self, SynthesisQuality};
use unspool_check::{CheckReport, CheckSubject, CodeOrigin, DeclaredTable, RowTotals, Severity};
use unspool_elf::ElfFile;
use unspool_single_step::{RowSource, StepRequest};
use unspool_synthesis::synthesize;

const COMPILERS: [&str; 2] = ["gcc", "clang"];
const LEVELS: [&str; 4] = ["-O0", "-O1", "-O2", "-O3"];
/// The folder of csmith's header in Debian.
const HEADERS: &str = "/usr/include/csmith";
/// Runs a program and discards its output.
const SILENTLY: &str = "exec \"$0\" > /dev/null";
/// When to kill a program that does not terminate; the others end in milliseconds.
const TIME_LIMIT: Duration = Duration::from_secs(2);

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let programs: u64 = arguments.next().map_or(Ok(10), |number| number.parse())?;
    let folder = Scratch::new()?;
    let sources: Vec<PathBuf> = (1..=programs)
        .map(|seed| generate(&folder, seed))
        .collect::<anyhow::Result<_>>()?;
    println!("the table | CFA proven | all proven | refuted | unproven | never reached");
    println!(
        "  rows made | there | CFA right | same | same, of those that are no expression | registers right | refuted at"
    );
    println!("  when run | rows executed | instructions without a row | wrong");
    let only = arguments.next();
    let is_asked_for = |compiler: &&str| only.as_ref().is_none_or(|only| only == compiler);
    for compiler in COMPILERS.into_iter().filter(is_asked_for) {
        for level in LEVELS {
            let mut found = CompilerTotals::default();
            for source in &sources {
                let name = format!("{} {compiler} {level}", source.display());
                let program = compile(&folder, source, compiler, level)?;
                found.take(&folder, &program, &name).context(name)?;
            }
            found.print(&format!("{compiler} {level}"));
        }
    }
    Ok(())
}

fn generate(folder: &Scratch, seed: u64) -> anyhow::Result<PathBuf> {
    let path = folder.join(&format!("{seed}.c"));
    let generated = Command::new("csmith")
        .args(["--seed", &seed.to_string()])
        .stdout(File::create(&path)?)
        .current_dir(folder.join("")) // It leaves a file there.
        .status()
        .context("cannot run csmith (Debian package csmith)")?;
    ensure!(generated.success(), "csmith --seed {seed}: {generated}");
    Ok(path)
}

fn compile(
    folder: &Scratch,
    source: &Path,
    compiler: &str,
    level: &str,
) -> anyhow::Result<PathBuf> {
    let program = folder.join("program");
    run(Command::new(compiler)
        .args(["-w", level, "-I", HEADERS, "-o"])
        .args([&program, source]))?;
    Ok(program)
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.stdout(Stdio::null()).status();
    let status = status.with_context(|| format!("cannot run {name}"))?;
    ensure!(status.success(), "{name}: {status}");
    Ok(())
}

/// The results for the programs of one compiler and level.
#[derive(Default)]
struct CompilerTotals {
    table: RowTotals,
    with_symbols: SynthesisTotals,
    stripped: SynthesisTotals,
}

/// The results for synthesized rows.
#[derive(Default)]
struct SynthesisTotals {
    quality: SynthesisQuality,
    executed: usize,
    without_row: usize,
    wrong: usize,
}

impl CompilerTotals {
    fn take(&mut self, folder: &Scratch, program: &Path, name: &str) -> anyhow::Result<()> {
        let file = ElfFile::open(program)?;
        let declarations = DeclaredTable::read(&file)?;
        let mut subject = CheckSubject::new(&file, &declarations, CodeOrigin::from_file(&file))?;
        let report = CheckReport::from_subject(&mut subject, NonZeroUsize::MIN, |_, _| {});
        let refuted = |severity: &Severity| *severity == Severity::Refuted;
        for finding in report.findings.iter().filter(|f| refuted(&f.severity)) {
            println!("{name}: {}: {}", finding.address, finding.message());
        }
        self.table.add(&report.totals);
        self.with_symbols.take(program, name)?;
        let stripped = folder.join("stripped");
        run(Command::new("strip").arg("-o").args([&stripped, program]))?;
        self.stripped.take(&stripped, &format!("{name}, stripped"))
    }

    fn print(&self, name: &str) {
        let percent = |count| unspool_bench::share(count, self.table.rows) * 100.0;
        println!(
            "{name}: {} rows | {:.3} % | {:.3} % | {} | {} | {}",
            self.table.rows,
            percent(self.table.proven_cfa),
            percent(self.table.proven),
            self.table.refuted,
            self.table.unproven,
            self.table.unreached,
        );
        self.with_symbols.print("with symbols");
        self.stripped.print("stripped");
    }
}

impl SynthesisTotals {
    fn take(&mut self, program: &Path, name: &str) -> anyhow::Result<()> {
        let file = ElfFile::open(program)?;
        let synthesis = synthesize(&file, file.symbols(), &[])?;
        let made = synthesis_quality::compare(&file, &synthesis.table, |at| {
            println!("{name}: made {at}");
        })?;
        self.quality.add(&made);
        let report = unspool_single_step::run(&StepRequest {
            command: vec!["sh".into(), "-c".into(), SILENTLY.into(), program.into()],
            functions: Vec::new(),
            modules: vec![program.to_string_lossy().into_owned()],
            rows: RowSource::Code,
            visits: 3,
            time_limit: TIME_LIMIT,
        })?;
        for found in &report.findings {
            println!(
                "{name}: {}: {}",
                found.finding.address,
                found.finding.message()
            );
        }
        self.wrong += report.findings.len();
        for function in &report.functions {
            self.executed += function.rows.executed;
            self.without_row += function.rows.missing;
        }
        Ok(())
    }

    fn print(&self, name: &str) {
        let made = self.quality;
        let percent = |count| unspool_bench::share(count, made.rows) * 100.0;
        println!(
            "  {name} | {:.3} % | {:.3} % | {:.3} % | {:.3} % | {:.3} % | {}",
            percent(made.covered),
            percent(made.cfa),
            percent(made.same),
            unspool_bench::share(made.same_plain, made.plain) * 100.0,
            percent(made.registers),
            made.refuted,
        );
        println!(
            "  {name}, run | {} | {} | {}",
            self.executed, self.without_row, self.wrong
        );
    }
}
