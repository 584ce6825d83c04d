//! `unspool check`.

use std::io::Write as _;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use serde_json::{Value, json};
use unspool_check::{
    Code, Declarations, Finding, Line, Maker, Report, Severity, Subject, SubjectError, Totals,
};
use unspool_ir::Vaddr;
use unspool_module::{DebugFiles, ElfFile, Lines, SearchRoots, Symbols, demangle};
use unspool_synth::{Analyzer, Machine};
use unspool_unwind::tables::SourceError;

use crate::args::{CheckArgs, CheckFormat};
use crate::output::{self, Failure};

mod allow;
mod dismiss;
mod fix;
mod github;
mod sarif;
pub(super) mod source;
mod suppressions;

use dismiss::{Dismissals, Remark};
use suppressions::Suppression;

/// What was found of one file.
struct Checked {
    path: PathBuf,
    totals: Totals,
    findings: Vec<Told>,
    /// Findings that are not told.
    untold: usize,
    /// What is to be said of comments that allow findings.
    remarks: Vec<Remark>,
}

impl Checked {
    /// The findings that nobody has a reason for.
    fn standing(&self) -> impl Iterator<Item = &Told> {
        self.findings
            .iter()
            .filter(|told| told.suppression.is_none())
    }

    /// Whether something is wrong.
    fn has_findings(&self) -> bool {
        let findings = self.standing().map(|told| told.finding.severity);
        let remarks = self.remarks.iter().map(|remark| remark.severity);
        findings
            .chain(remarks)
            .any(|severity| severity != Severity::Note)
    }
}

/// A finding with its surroundings.
struct Told {
    finding: Finding,
    /// The function, with the distance from its start.
    function: Option<(String, u64)>,
    source: Option<(String, u32)>,
    lines: Vec<Line>,
    /// Why it does not count, if it does not.
    suppression: Option<Suppression>,
}

impl Told {
    /// The file and line of the source, or without one the file that was checked.
    fn place<'a>(&'a self, file: &'a Checked) -> (std::borrow::Cow<'a, str>, Option<u32>) {
        match &self.source {
            Some((source, line)) => (source.as_str().into(), Some(*line)),
            None => (file.path.to_string_lossy(), None),
        }
    }

    /// The function's name, empty if no symbol names it.
    fn function_name(&self) -> &str {
        self.function.as_ref().map_or("", |(name, _)| name.as_str())
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
    if let Some(code) = args.explain {
        output::print(explanation(code).as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.diff {
        return fix::print_diffs(args);
    }
    let mut dismissals = Dismissals::read(args)?;
    let mut checked = Vec::new();
    let mut failed = Vec::new();
    for path in &args.files {
        let edited = match args.fix {
            true => fix::edit(path, args).map(drop),
            false => Ok(()),
        };
        match edited.and_then(|()| check(path, args, &mut dismissals)) {
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
    dismissals.end(args, &checked)?;
    let has_findings = !args.write_baseline && checked.iter().any(Checked::has_findings);
    Ok(ExitCode::from(match (failed.is_empty(), has_findings) {
        (false, _) => Failure::COULD_NOT_RUN,
        (true, true) => Failure::FINDINGS,
        (true, false) => 0,
    }))
}

/// What a kind of finding means.
fn explanation(code: Code) -> String {
    format!("{} {}\n\n{}\n", code.id(), code.name(), code.explanation())
}

fn check(path: &Path, args: &CheckArgs, dismissals: &mut Dismissals) -> anyhow::Result<Checked> {
    let assembled = source::assemble(path)?;
    let file = match &assembled {
        Some(object) => ElfFile::from_bytes(path, object.as_slice())?,
        None => ElfFile::open(path)?,
    };
    let file = Arc::new(file);
    let declarations = match &assembled {
        Some(_) => declarations_of_source(&file)?,
        None => Declarations::read(&file)?,
    };
    let maker = match &assembled {
        Some(_) => Maker::People,
        None => Maker::of(&file),
    };
    let least = least(args, maker);
    let mut subject = Subject::new(&file, &declarations, maker)?;
    let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let report = Report::of(&mut subject, threads, |_, _| {});
    let (told, untold): (Vec<Finding>, Vec<Finding>) = report
        .findings
        .into_iter()
        .partition(|finding| finding.severity >= least);
    let mut checked = Checked {
        path: path.to_path_buf(),
        totals: report.totals,
        untold: untold.len(),
        findings: surroundings(&file, &subject, told),
        remarks: Vec::new(),
    };
    for told in &mut checked.findings {
        told.suppression = dismissals.of(path, told);
    }
    if assembled.is_some() {
        // A comment may be about what is only told on request.
        for told in &surroundings(&file, &subject, untold) {
            dismissals.of_comment(told);
        }
        checked.remarks = dismissals.remarks(path);
    }
    Ok(checked)
}

/// What an assembled file declares. Nothing, if its author has written no directive: each function is a finding then.
fn declarations_of_source(file: &ElfFile) -> Result<Declarations, SubjectError> {
    match Declarations::read(file) {
        Err(SubjectError::Source(SourceError::Missing { .. })) => Ok(Declarations::none(file)),
        read => read,
    }
}

/// The least severity that is told.
fn least(args: &CheckArgs, maker: Maker) -> Severity {
    match (args.strict, args.lenient) {
        (true, _) => Severity::Note,
        (_, true) => Severity::Refuted,
        _ if maker == Maker::People => Severity::Unproven,
        _ => Severity::Refuted,
    }
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
            suppression: None,
        }
    };
    findings.into_iter().enumerate().map(tell).collect()
}

fn print_text(checked: &[Checked]) -> anyhow::Result<()> {
    let mut out = output::results();
    for file in checked {
        for told in file.standing() {
            tell(&mut out, file, told)?;
        }
        for remark in &file.remarks {
            let Remark {
                path,
                line,
                severity,
                text,
            } = remark;
            let (severity, code) = (severity.name(), Code::Allow.id());
            writeln!(out, "{path}:{line}: {severity} {code} {text}")?;
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
        let suppressed = file.findings.len() - file.standing().count();
        if suppressed > 0 {
            writeln!(
                out,
                "{}: {suppressed} findings suppressed",
                file.path.display()
            )?;
        }
    }
    out.flush()?;
    Ok(())
}

fn tell(out: &mut impl std::io::Write, file: &Checked, told: &Told) -> std::io::Result<()> {
    let finding = &told.finding;
    let place = match &told.source {
        Some((source, line)) => format!("{source}:{line}"),
        None => format!("{}:{}", file.path.display(), finding.at),
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
    let findings: Vec<Value> = file
        .findings
        .iter()
        .map(|told| {
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
                "suppressed": told.suppression.as_ref().map(|suppression| json!({
                    "by": suppression.by.name(),
                    "reason": suppression.reason,
                })),
            })
        })
        .collect();
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
        "remarks": file.remarks.iter().map(Remark::as_json).collect::<Vec<_>>(),
        "not_told": file.untold,
    })
}
