//! `unspool check`.

use std::collections::HashSet;
use std::io::Write as _;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::bail;
use serde_json::{Value, json};
use unspool_check::{
    Code, Declarations, Finding, Line, Maker, Report, Severity, Subject, SubjectError, Totals,
};
use unspool_ir::Vaddr;
use unspool_module::{
    Container, DebugFiles, ElfFile, ElfKind, Lines, SearchRoots, Symbols, demangle,
};
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
    /// The archive that it is a member of.
    archive: Option<PathBuf>,
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
    /// The jumps on a way there: addresses, and lines of the same source.
    path: Vec<[(Vaddr, Option<u32>); 2]>,
    /// Whether the instruction before is of the same line of the source.
    shares_line: bool,
    /// The line after which the directive is to be written.
    after_line: Option<u32>,
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
        match self.remedy() {
            Some(remedy) => format!("{message}, {place}; {remedy}"),
            None => format!("{message}, {place}"),
        }
    }

    /// What to write, and where.
    fn remedy(&self) -> Option<String> {
        let fix = self.finding.fix.as_ref()?;
        Some(match self.after_line {
            Some(line) => format!("write after line {line}: {fix}"),
            None => format!("write before {:x}: {fix}", self.finding.at.0),
        })
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
        let files = edited.and_then(|()| check(path, args, &mut dismissals));
        for file in files.unwrap_or_else(|error| vec![Err((path.clone(), error))]) {
            match file {
                Ok(file) => checked.push(file),
                Err((path, error)) => {
                    output::error(&format_args!("{error:#}"));
                    failed.push(super::failed(&path, &error));
                }
            }
        }
    }
    if args.own.is_some() {
        tell_once(&mut checked);
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

/// Leaves out findings of code that is in several files: a library, and the programs that it is linked into.
fn tell_once(checked: &mut [Checked]) {
    let mut seen = HashSet::new();
    for file in checked {
        file.findings.retain(|told| {
            let key = (
                told.finding.code,
                told.function.clone(),
                told.finding.subject.clone(),
            );
            told.function.is_none() || seen.insert(key)
        });
    }
}

/// What a kind of finding means.
fn explanation(code: Code) -> String {
    format!("{} {}\n\n{}\n", code.id(), code.name(), code.explanation())
}

/// A file that was checked, or its name and why it was not.
type Outcome = Result<Checked, (PathBuf, anyhow::Error)>;

/// Checks a file, or what it holds.
fn check(
    path: &Path,
    args: &CheckArgs,
    dismissals: &mut Dismissals,
) -> anyhow::Result<Vec<Outcome>> {
    if let Some(object) = source::assemble(path)? {
        let file = Arc::new(ElfFile::from_bytes(path, object)?);
        let declarations = declarations_of_source(&file)?;
        let mut checked = check_file(&file, &declarations, Maker::People, args, dismissals)?;
        checked.remarks = dismissals.remarks(path);
        return Ok(vec![Ok(checked)]);
    }
    let mut check = |file: ElfFile| {
        let declarations = Declarations::read(&file)?;
        let maker = Maker::of(&file);
        anyhow::Ok(check_file(
            &Arc::new(file),
            &declarations,
            maker,
            args,
            dismissals,
        )?)
    };
    let members = match Container::open(path)? {
        Container::File(file) => {
            let is_kernel_module = file.sections().any(|section| section.name == ".modinfo");
            return match check(*file) {
                Err(error) if is_kernel_module && is_without_table(&error) => bail!(
                    "{error}; kernel modules have one only if they are built with -fasynchronous-unwind-tables"
                ),
                checked => Ok(vec![Ok(checked?)]),
            };
        }
        Container::Archive(members) => members,
    };
    let mut outcomes = Vec::new();
    let mut without = 0;
    for member in members {
        let name = |member: &ElfFile| member.path().to_path_buf();
        let (name, checked) = match member {
            Ok(member) => (name(&member), check(member)),
            Err(error) => (path.to_path_buf(), Err(error.into())),
        };
        match checked {
            Err(error) if is_without_table(&error) => without += 1,
            Err(error) => outcomes.push(Err((name, error))),
            Ok(mut checked) => {
                checked.archive = Some(path.to_path_buf());
                outcomes.push(Ok(checked));
            }
        }
    }
    if outcomes.is_empty() {
        bail!("{}: no member has an unwind table", path.display());
    }
    if without > 0 {
        output::notice(&format_args!(
            "{}: {without} members have no unwind table",
            path.display()
        ));
    }
    Ok(outcomes)
}

/// Whether a file simply has no unwind table.
fn is_without_table(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref();
    matches!(
        error,
        Some(SubjectError::Source(SourceError::Missing { .. }))
    )
}

fn check_file(
    file: &Arc<ElfFile>,
    declarations: &Declarations,
    maker: Maker,
    args: &CheckArgs,
    dismissals: &mut Dismissals,
) -> Result<Checked, SubjectError> {
    let least = least(args, maker);
    let mut subject = Subject::new(file, declarations, maker)?;
    let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let report = Report::of(&mut subject, threads, |_, _| {});
    let mut checked = Checked {
        path: file.path().to_path_buf(),
        archive: None,
        totals: report.totals,
        untold: 0,
        findings: Vec::new(),
        remarks: Vec::new(),
    };
    let Some(mut surroundings) = Surroundings::of(file, &subject, &report.findings) else {
        return Ok(checked);
    };
    let origin = Origin::of(file, args);
    if args.own.is_some() && !origin.has_lines && file.kind() != ElfKind::Relocatable {
        output::notice(&format_args!(
            "{}: no line numbers say whose code is whose: nothing is told (a profile with `debug = \"line-tables-only\"` has some)",
            file.path().display()
        ));
    }
    for mut finding in report.findings {
        let source = surroundings.source(finding.at);
        let source_path = source.as_ref().map(|(source, _)| Path::new(source));
        if !origin.is_own(source_path) {
            continue;
        }
        // Of what people wrote all is told, wherever it is linked in.
        let mut least = least;
        if origin.is_written(source_path) && !args.lenient {
            least = least.min(Severity::Unproven);
            origin.reconsider(&mut finding);
        }
        if finding.severity < least {
            // A comment may be about what is only told on request.
            dismissals.of_comment(source.as_ref(), finding.code);
            checked.untold += 1;
            continue;
        }
        let mut told = surroundings.tell(finding, source, checked.findings.len());
        told.suppression = dismissals.of(&checked.path, &told);
        told.after_line = dismissals.line_before(&told);
        checked.findings.push(told);
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

/// Whose code that in a file is.
struct Origin<'a> {
    own: Option<&'a Path>,
    kind: ElfKind,
    has_lines: bool,
}

impl<'a> Origin<'a> {
    fn of(file: &ElfFile, args: &'a CheckArgs) -> Origin<'a> {
        Origin {
            own: args.own.as_deref(),
            kind: file.kind(),
            has_lines: file.sections().any(|section| section.name == ".debug_line"),
        }
    }

    /// Whether it is asked for.
    fn is_own(&self, source: Option<&Path>) -> bool {
        match (self.own, source) {
            (Some(own), Some(source)) => source.starts_with(own),
            // The objects of a crate's library are its own; programs have others' code in them.
            (Some(_), None) => self.has_lines || self.kind == ElfKind::Relocatable,
            (None, _) => true,
        }
    }

    /// Whether people wrote it in assembly. rustc gives that of `global_asm!` and naked functions no line numbers.
    fn is_written(&self, source: Option<&Path>) -> bool {
        match source {
            Some(source) => source::is_source(source),
            None => self.own.is_some() && self.has_lines,
        }
    }

    /// Functions without an entry are a fault of whoever wrote them, but for those that the C library begins programs
    /// with.
    fn reconsider(&self, finding: &mut Finding) {
        let is_of_entry = matches!(finding.code, Code::NoEntry | Code::EntryTooShort);
        if is_of_entry && self.kind == ElfKind::Relocatable {
            finding.severity = Severity::Refuted;
        }
    }
}

/// What stands around the findings of a file.
struct Surroundings<'s> {
    subject: &'s Subject<'s>,
    symbols: Symbols,
    lines: Lines,
    analyzer: Analyzer,
}

impl<'s> Surroundings<'s> {
    /// None if there are no findings.
    fn of(
        file: &Arc<ElfFile>,
        subject: &'s Subject<'s>,
        findings: &[Finding],
    ) -> Option<Surroundings<'s>> {
        let addresses: Vec<Vaddr> = findings.iter().map(|finding| finding.at).collect();
        if addresses.is_empty() {
            return None;
        }
        let debug = DebugFiles::locate(file, &SearchRoots::default());
        Some(Surroundings {
            subject,
            symbols: Symbols::near(file, debug.debug.as_deref(), &addresses),
            lines: Lines::new(Arc::clone(file), &debug, &addresses),
            analyzer: Analyzer::new(Machine::of(file.abi())?),
        })
    }

    /// The file and line of the source.
    fn source(&self, at: Vaddr) -> Option<(String, u32)> {
        let frames = self.lines.frames(at).unwrap_or_default();
        let innermost = frames.into_iter().next()?;
        Some((innermost.file?, innermost.line?))
    }

    /// A finding with what stands around it, when so many have been told.
    fn tell(&mut self, finding: Finding, source: Option<(String, u32)>, told: usize) -> Told {
        /// Instructions that are shown before the one that a finding is about, and from it on.
        const SHOWN: (usize, usize) = (3, 2);
        /// Each listing takes another look at the function.
        const LISTINGS: usize = 1000;
        let symbol = self.symbols.lookup(finding.at);
        let (mut lines, mut path) = (Vec::new(), None);
        if told < LISTINGS {
            lines = self
                .subject
                .listing(&mut self.analyzer, finding.at, SHOWN.0, SHOWN.1);
            path = self.subject.path_to(&mut self.analyzer, finding.at);
        }
        // Lines of another file would mislead.
        let line_of = |at: Vaddr| {
            let here = self.source(at)?;
            source
                .as_ref()
                .filter(|(file, _)| *file == here.0)
                .map(|_| here.1)
        };
        let before = lines.iter().rev().find(|insn: &&Line| insn.at < finding.at);
        let line_before = before.and_then(|insn| line_of(insn.at));
        let path = path.unwrap_or_default().into_iter();
        Told {
            function: symbol.map(|symbol| {
                let distance = finding.at.0.saturating_sub(symbol.address.0);
                (demangle(&symbol.name).into_owned(), distance)
            }),
            shares_line: line_before.is_some() && line_before == line_of(finding.at),
            path: path.map(|jump| jump.map(|at| (at, line_of(at)))).collect(),
            source,
            lines,
            finding,
            after_line: None,
            suppression: None,
        }
    }
}

fn print_text(checked: &[Checked]) -> anyhow::Result<()> {
    let mut out = output::results();
    let is_one = |a: &Checked, b: &Checked| a.archive.is_some() && a.archive == b.archive;
    for files in checked.chunk_by(is_one) {
        let mut totals = Totals::default();
        let mut suppressed = 0;
        for file in files {
            for told in file.standing() {
                tell(&mut out, file, told)?;
            }
            for remark in &file.remarks {
                writeln!(out, "{remark}")?;
            }
            totals.add(&file.totals);
            suppressed += file.findings.len() - file.standing().count();
        }
        let name = files
            .first()
            .map(|file| file.archive.as_ref().unwrap_or(&file.path));
        let name = name.map_or_else(String::new, |name| name.display().to_string());
        writeln!(
            out,
            "{name}: {} rows: {} proven, {} refuted, {} unproven, {} never reached",
            totals.rows, totals.proven, totals.refuted, totals.unproven, totals.unreached,
        )?;
        if suppressed > 0 {
            writeln!(out, "{name}: {suppressed} findings suppressed")?;
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
    if !told.path.is_empty() {
        let end = |(at, line): (Vaddr, Option<u32>)| match line {
            Some(line) => format!("line {line}"),
            None => format!("{:x}", at.0),
        };
        let jumps = told.path.iter().map(|jump| jump.map(end).join(" -> "));
        writeln!(
            out,
            "    by way of {}",
            jumps.collect::<Vec<_>>().join(", ")
        )?;
    }
    if let Some(remedy) = told.remedy() {
        writeln!(out, "    {remedy}")?;
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
                "path": told.path.iter().map(|jump| jump.map(|(at, _)| output::address(at.0))).collect::<Vec<_>>(),
                "fix": finding.fix,
                "fix_after_line": told.after_line,
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
