//! `unspool check`.

use std::io::Write as _;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use serde_json::{Value, json};
use unspool_check::{Declarations, Finding, Line, Maker, Report, Severity, Subject, Totals};
use unspool_ir::Vaddr;
use unspool_module::{DebugFiles, ElfFile, Lines, SearchRoots, Symbols, demangle};
use unspool_synth::{Analyzer, Machine};

use crate::args::{CheckArgs, CheckFormat};
use crate::output::{self, Failure};

#[cfg(target_arch = "x86_64")]
mod call;
mod github;
#[cfg(target_arch = "x86_64")]
mod run;
mod sarif;
pub(super) mod source;

/// What was found of one file.
struct Checked {
    path: PathBuf,
    totals: Totals,
    findings: Vec<Told>,
    /// Findings that are not told.
    untold: usize,
}

/// A finding with its surroundings.
struct Told {
    finding: Finding,
    /// The function, with the distance from its start.
    function: Option<(String, u64)>,
    source: Option<(String, u32)>,
    lines: Vec<Line>,
}

impl Told {
    /// The file and line of the source, or without one the file that was checked.
    fn place<'a>(&'a self, file: &'a Checked) -> (std::borrow::Cow<'a, str>, Option<u32>) {
        match &self.source {
            Some((source, line)) => (source.as_str().into(), Some(*line)),
            None => (file.path.to_string_lossy(), None),
        }
    }

    /// What is wrong, where, and what to write.
    fn sentence(&self) -> String {
        let at = self.finding.at;
        let place = match &self.function {
            Some((name, distance)) => format!("in {name}+{distance:#x}"),
            None => format!("at {at}"),
        };
        let message = self.finding.message();
        match &self.finding.fix {
            Some(fix) => format!("{message}, {place}; write before {at}: {fix}"),
            None => format!("{message}, {place}"),
        }
    }
}

pub(crate) fn run(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    if args.stepped.run || args.called.call.is_some() {
        #[cfg(target_arch = "x86_64")]
        return match &args.called.call {
            Some(function) => call::run(args, function, args.format.of_run()?),
            None => run::run(&args.stepped, args.format.of_run()?),
        };
        #[cfg(not(target_arch = "x86_64"))]
        anyhow::bail!("programs can be stepped on x86-64 only");
    }
    let mut checked = Vec::new();
    let mut failed = Vec::new();
    for path in &args.files {
        match check(path, args) {
            Ok(file) => checked.push(file),
            Err(error) => {
                output::error(&format_args!("{error:#}"));
                failed.push(super::failed(path, &error));
            }
        }
    }
    match args.format {
        CheckFormat::Text => print_text(&checked)?,
        CheckFormat::Json => print_json(&checked, failed.clone())?,
        CheckFormat::Sarif => sarif::print(&checked)?,
        CheckFormat::Github => github::print(&checked)?,
    }
    let has_findings = checked.iter().any(|file| {
        let mut findings = file.findings.iter();
        findings.any(|told| told.finding.severity != Severity::Note)
    });
    Ok(ExitCode::from(match (failed.is_empty(), has_findings) {
        (false, _) => Failure::COULD_NOT_RUN,
        (true, true) => Failure::FINDINGS,
        (true, false) => 0,
    }))
}

fn check(path: &Path, args: &CheckArgs) -> anyhow::Result<Checked> {
    let assembled = source::assemble(path)?;
    let file = match &assembled {
        Some(object) => ElfFile::from_bytes(path, object.as_slice())?,
        None => ElfFile::open(path)?,
    };
    let file = Arc::new(file);
    let declarations = Declarations::read(&file)?;
    let maker = match &assembled {
        Some(_) => Maker::People,
        None => Maker::of(&file),
    };
    let least = match (args.strict, args.lenient) {
        (true, _) => Severity::Note,
        (_, true) => Severity::Refuted,
        _ if maker == Maker::People => Severity::Unproven,
        _ => Severity::Refuted,
    };
    let mut subject = Subject::new(&file, &declarations, maker)?;
    let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let report = Report::of(&mut subject, threads, |_, _| {});
    let all = report.findings.len();
    let told: Vec<Finding> = report
        .findings
        .into_iter()
        .filter(|finding| finding.severity >= least)
        .collect();
    Ok(Checked {
        path: path.to_path_buf(),
        totals: report.totals,
        untold: all - told.len(),
        findings: surroundings(&file, &subject, told),
    })
}

/// Finds out what stands around findings.
fn surroundings(file: &Arc<ElfFile>, subject: &Subject<'_>, findings: Vec<Finding>) -> Vec<Told> {
    /// Instructions that are shown before the one that a finding is about, and from it on.
    const SHOWN: (usize, usize) = (3, 2);
    /// Each listing takes another look at the function.
    const LISTINGS: usize = 1000;
    let addresses: Vec<Vaddr> = findings.iter().map(|finding| finding.at).collect();
    let debug = DebugFiles::locate(file, &SearchRoots::default());
    let symbols = Symbols::near(file, debug.debug.as_deref(), &addresses);
    let lines = Lines::new(Arc::clone(file), &debug, &addresses);
    let Some(machine) = Machine::of(file.abi()) else {
        return Vec::new();
    };
    let mut analyzer = Analyzer::new(machine);
    let tell = |(number, finding): (usize, Finding)| {
        let symbol = symbols.lookup(finding.at);
        let frames = lines.frames(finding.at).unwrap_or_default();
        let innermost = frames.into_iter().next();
        Told {
            function: symbol.map(|symbol| {
                let distance = finding.at.0.saturating_sub(symbol.address.0);
                (demangle(&symbol.name).into_owned(), distance)
            }),
            source: innermost.and_then(|frame| Some((frame.file?, frame.line?))),
            lines: match number < LISTINGS {
                true => subject.listing(&mut analyzer, finding.at, SHOWN.0, SHOWN.1),
                false => Vec::new(),
            },
            finding,
        }
    };
    findings.into_iter().enumerate().map(tell).collect()
}

fn print_text(checked: &[Checked]) -> anyhow::Result<()> {
    let mut out = output::results();
    for file in checked {
        for told in &file.findings {
            tell(&mut out, &file.path, told)?;
        }
        let totals = &file.totals;
        writeln!(
            out,
            "{}: {} rows: {} proven, {} refuted, {} unproven, {} never reached",
            file.path.display(),
            totals.rows,
            totals.proven,
            totals.refuted,
            totals.unproven,
            totals.unreached,
        )?;
    }
    out.flush()?;
    Ok(())
}

fn tell(out: &mut impl std::io::Write, file: &Path, told: &Told) -> std::io::Result<()> {
    let finding = &told.finding;
    let place = match &told.source {
        Some((source, line)) => format!("{source}:{line}"),
        None => format!("{}:{}", file.display(), finding.at),
    };
    write!(
        out,
        "{place}: {} {} {}: ",
        finding.severity.name(),
        finding.code.id(),
        finding.message(),
    )?;
    match &told.function {
        Some((name, distance)) => writeln!(out, "in {name}+{distance:#x}")?,
        None => writeln!(out, "at {}", finding.at)?,
    }
    let width = told.lines.iter().map(|line| line.text.len()).max();
    let width = width.unwrap_or(0);
    for line in &told.lines {
        let mark = if line.at == finding.at { '>' } else { ' ' };
        write!(
            out,
            "  {mark} {:>8x}  {:width$}  declared {:<10}",
            line.at.0, line.text, line.declared
        )?;
        match line.computed.as_str() {
            "" => writeln!(out, "  not known")?,
            computed if computed == line.declared => writeln!(out)?,
            computed => writeln!(out, "  is {computed}")?,
        }
    }
    if let Some(fix) = &finding.fix {
        writeln!(out, "    write before {:x}: {fix}", finding.at.0)?;
    }
    Ok(())
}

fn print_json(checked: &[Checked], failed: Vec<Value>) -> anyhow::Result<()> {
    let files: Vec<Value> = checked.iter().map(as_json).chain(failed).collect();
    let body = json!({
        "unspool": env!("CARGO_PKG_VERSION"),
        "files": files,
    });
    Ok(output::document("check", &body)?)
}

fn as_json(file: &Checked) -> Value {
    let totals = &file.totals;
    let findings: Vec<Value> = file.findings.iter().map(finding_as_json).collect();
    json!({
        "file": file.path.to_string_lossy(),
        "rows": {
            "all": totals.rows,
            "proven": totals.proven,
            "proven_cfa": totals.proven_cfa,
            "refuted": totals.refuted,
            "unproven": totals.unproven,
            "unreached": totals.unreached,
        },
        "findings": findings,
        "not_told": file.untold,
    })
}

fn finding_as_json(told: &Told) -> Value {
    let finding = &told.finding;
    json!({
        "code": finding.code.id(),
        "name": finding.code.name(),
        "verdict": finding.severity.name(),
        "file": told.source.as_ref().map(|(file, _)| file),
        "line": told.source.as_ref().map(|(_, line)| line),
        "function": told.function.as_ref().map(|(name, _)| name),
        "offset": told.function.as_ref().map(|(_, offset)| offset),
        "address": output::address(finding.at.0),
        "subject": finding.subject,
        "declared": finding.declared,
        "computed": finding.computed,
        "places": finding.places,
        "related": finding.related.iter().map(|at| output::address(at.0)).collect::<Vec<_>>(),
        "fix": finding.fix,
    })
}
