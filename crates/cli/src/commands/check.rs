//! `unspool check`.

use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::bail;
use unspool_assembly::AssemblySource;
use unspool_check::{
    CheckReport, CheckSubject, CodeOrigin, CodeOrigins, DeclaredTable, FindingCode, RowTotals,
    Severity, SubjectError,
};
use unspool_elf::{Container, ElfFile, ElfKind, ModuleError};
use unspool_rows::Vaddr;
use unspool_table_store::SourceError;

use crate::args::{CheckArgs, CheckFormat};
use crate::output::{self, ExitCodes};

mod allow;
#[cfg(target_arch = "x86_64")]
mod call;
mod context;
mod fix;
mod github;
mod json;
mod ownership;
pub(crate) mod repair;
#[cfg(target_arch = "x86_64")]
mod run;
mod sarif;
mod suppress;
mod suppressions;
mod text;

use super::cc::CcAssembler;
use context::{FindingLocator, LocatedFinding};
use ownership::CodeOwnership;
use suppress::{Remark, SuppressionSources};

/// The findings of one file.
struct FileReport {
    path: PathBuf,
    /// The archive that contains it.
    archive: Option<PathBuf>,
    totals: RowTotals,
    /// The functions counted in [`RowTotals::assuming_bounds`].
    assuming_bounds: Vec<Vaddr>,
    findings: Vec<LocatedFinding>,
    /// Findings below the reported severity.
    below_severity: usize,
    /// Remarks on comments that allow findings.
    remarks: Vec<Remark>,
}

impl FileReport {
    /// Findings without a suppression.
    fn unsuppressed(&self) -> impl Iterator<Item = &LocatedFinding> {
        self.findings
            .iter()
            .filter(|finding| finding.suppression.is_none())
    }

    /// Whether there are unsuppressed findings.
    fn has_findings(&self) -> bool {
        let findings = self.unsuppressed().map(|finding| finding.finding.severity);
        let remarks = self.remarks.iter().map(|remark| remark.severity);
        findings
            .chain(remarks)
            .any(|severity| severity != Severity::Note)
    }
}

pub(crate) fn run(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let args = &args.without_command();
    if let Some(code) = args.explain {
        output::print(explanation(code).as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.step_args.run || args.call_args.call.is_some() {
        #[cfg(target_arch = "x86_64")]
        return match &args.call_args.call {
            Some(function) => call::run(args, function, args.format.of_run()?),
            None => run::run(&args.step_args, args.format.of_run()?),
        };
        #[cfg(not(target_arch = "x86_64"))]
        anyhow::bail!("programs can be stepped on x86-64 only");
    }
    if args.diff {
        return fix::print_diffs(args);
    }
    let mut dismissals = SuppressionSources::read(args)?;
    let mut checked = Vec::new();
    let mut failed = Vec::new();
    for path in &args.files {
        let edited = match args.fix {
            true if AssemblySource::is_assembly_path(path) => fix::edit(path, args).map(drop),
            true => repair::repair(path),
            false => Ok(()),
        };
        let files = edited.and_then(|()| check(path, args, &mut dismissals));
        for file in files.unwrap_or_else(|error| vec![Err((path.clone(), error))]) {
            match file {
                Ok(file) => checked.push(file),
                Err((path, error)) => {
                    output::error(&format_args!("{error:#}"));
                    failed.push(super::error_object(&path, &error));
                }
            }
        }
    }
    if args.own.is_some() {
        remove_duplicates(&mut checked);
    }
    match args.format {
        CheckFormat::Text => text::print(&checked)?,
        CheckFormat::Json => json::print(&checked, failed.clone())?,
        CheckFormat::Sarif => sarif::print(&checked)?,
        CheckFormat::Github => github::print(&checked)?,
    }
    dismissals.end(args, &checked)?;
    let has_findings = !args.write_baseline && checked.iter().any(FileReport::has_findings);
    Ok(ExitCode::from(match (failed.is_empty(), has_findings) {
        (false, _) => ExitCodes::COULD_NOT_RUN,
        (true, true) => ExitCodes::FINDINGS,
        (true, false) => 0,
    }))
}

/// Removes findings of code that is in several files: a library, and the programs that link it.
fn remove_duplicates(checked: &mut [FileReport]) {
    let mut seen = HashSet::new();
    for file in checked {
        file.findings.retain(|finding| {
            let key = (
                finding.finding.code,
                finding.function.clone(),
                finding.finding.subject.clone(),
            );
            finding.function.is_none() || seen.insert(key)
        });
    }
}

/// The explanation of a kind of finding.
fn explanation(code: FindingCode) -> String {
    format!("{} {}\n\n{}\n", code.id(), code.name(), code.explanation())
}

/// The report of a file, or its name and why it was not checked.
type CheckResult = Result<FileReport, (PathBuf, anyhow::Error)>;

/// Checks a file, or the members of an archive.
fn check(
    path: &Path,
    args: &CheckArgs,
    suppressions: &mut SuppressionSources,
) -> anyhow::Result<Vec<CheckResult>> {
    if AssemblySource::is_assembly_path(path) {
        let object = CcAssembler::from_environment().assemble_file(path)?;
        let file = Arc::new(ElfFile::from_bytes(path, object)?);
        let declarations = declarations_of_source(&file)?;
        let authors = CodeOrigins::from(CodeOrigin::HandWritten);
        let mut checked = check_file(&file, &declarations, authors, args, suppressions)?;
        if !args.fix {
            fix::advise(path, args, &file, &mut checked.findings)?;
        }
        checked.remarks = suppressions.remarks(path);
        use_given_path(path, &mut checked.findings);
        return Ok(vec![Ok(checked)]);
    }
    let mut check_elf = |file: ElfFile| {
        let file = Arc::new(file);
        let authors = CodeOwnership::new(&file, args).authors(&file, &context::lines(&file));
        let checked = match DeclaredTable::read(&file) {
            Ok(declared) => check_file(&file, &declared, authors, args, suppressions)?,
            Err(error) => {
                let checked = check_without_table(&file, authors, args, suppressions)?;
                checked.ok_or_else(|| anyhow::Error::from(error))?
            }
        };
        file.check_unchanged()?;
        Ok(checked)
    };
    match Container::open(path)? {
        Container::File(file) => {
            let is_kernel_module = is_kernel_module(&file);
            match check_elf(*file) {
                Err(error) if is_kernel_module && is_without_table(&error) => bail!(
                    "{error}; kernel modules have one only if they are built with -fasynchronous-unwind-tables"
                ),
                checked => Ok(vec![Ok(checked?)]),
            }
        }
        Container::Archive(members) => check_members(path, members, check_elf),
    }
}

/// Names source files in findings as the user does, where the assembler has written the whole path.
fn use_given_path(path: &Path, findings: &mut [LocatedFinding]) {
    let Ok(whole) = path.canonicalize() else {
        return;
    };
    let sources = findings
        .iter_mut()
        .filter_map(|finding| finding.source.as_mut());
    for (source, _) in sources {
        if Path::new(source).canonicalize().is_ok_and(|it| it == whole) {
            *source = path.to_string_lossy().into_owned();
        }
    }
}

/// Checks the members of an archive that have a table.
fn check_members(
    path: &Path,
    members: Vec<Result<ElfFile, ModuleError>>,
    mut check_elf: impl FnMut(ElfFile) -> anyhow::Result<FileReport>,
) -> anyhow::Result<Vec<CheckResult>> {
    let mut outcomes = Vec::new();
    let mut without = 0;
    for member in members {
        let (name, checked) = match member {
            Ok(member) => (member.path().to_path_buf(), check_elf(member)),
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
        let path = path.display();
        output::notice(&format_args!(
            "{path}: {without} members have no unwind table"
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
    declarations: &DeclaredTable,
    origins: CodeOrigins,
    args: &CheckArgs,
    suppressions: &mut SuppressionSources,
) -> Result<FileReport, SubjectError> {
    let lines = origins.has_hand_written().then(|| context::lines(file));
    let mut subject = CheckSubject::new(file, declarations, origins)?;
    if let Some(lines) = &lines {
        subject = subject.with_lines(lines);
    }
    let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let report = CheckReport::from_subject(&mut subject, threads, |_, _| {});
    let mut checked = FileReport {
        path: file.path().to_path_buf(),
        archive: None,
        totals: report.totals,
        assuming_bounds: report.functions_assuming_bounds,
        below_severity: 0,
        findings: Vec::new(),
        remarks: Vec::new(),
    };
    let Some(mut surroundings) = FindingLocator::new(file, &subject, &report.findings) else {
        return Ok(checked);
    };
    let origin = CodeOwnership::new(file, args);
    if args.own.is_some() && !origin.has_lines && file.kind() != ElfKind::Relocatable {
        output::notice(&format_args!(
            "{}: no line numbers show whose code it is: nothing is reported (build with `debug = \"line-tables-only\"`)",
            file.path().display()
        ));
    }
    for finding in report.findings {
        let source = surroundings.source(finding.address);
        let source_path = source.as_ref().map(|(source, _)| Path::new(source));
        if !origin.is_own(source_path) {
            continue;
        }
        // In hand-written code everything is reported, in any program, whichever unit has its line
        // numbers.
        let code_origin = match origin.is_hand_written(source_path) {
            true => CodeOrigin::HandWritten,
            false => subject.origin_at(finding.address),
        };
        if finding.severity < minimum_severity(args, code_origin) {
            // A comment may be about a finding that is reported only on request.
            suppressions.find_comment(source.as_ref(), finding.code);
            checked.below_severity += 1;
            continue;
        }
        let mut located_finding = surroundings.locate(finding, source, checked.findings.len());
        located_finding.suppression = suppressions.find(&checked.path, &located_finding);
        located_finding.after_line = suppressions.line_before(&located_finding);
        checked.findings.push(located_finding);
    }
    Ok(checked)
}

/// Checks an object file that has code and no table: its functions lack entries, whoever wrote it.
/// `None` if the file cannot be checked without a table: without functions, a kernel module, or
/// linked, since its table may be in another file.
fn check_without_table(
    file: &Arc<ElfFile>,
    origins: CodeOrigins,
    args: &CheckArgs,
    suppressions: &mut SuppressionSources,
) -> Result<Option<FileReport>, SubjectError> {
    let is_object = file.kind() == ElfKind::Relocatable && !is_kernel_module(file);
    if !is_object || file.executable_ranges().is_empty() {
        return Ok(None);
    }
    let bare = match declarations_of_source(file) {
        Ok(declarations) if declarations.table.fdes().is_empty() => declarations,
        _ => return Ok(None),
    };
    let everybody = match origins.has_hand_written() {
        true => origins,
        false => CodeOrigins::from(CodeOrigin::HandWritten),
    };
    let checked = check_file(file, &bare, everybody, args, suppressions)?;
    Ok(Some(checked).filter(|checked| !checked.findings.is_empty()))
}

fn is_kernel_module(file: &ElfFile) -> bool {
    file.sections().any(|section| section.name == ".modinfo")
}

/// The declarations of an assembled file. None if its author has written no directive: each
/// function is a finding then.
fn declarations_of_source(file: &ElfFile) -> Result<DeclaredTable, SubjectError> {
    match DeclaredTable::read(file) {
        Err(SubjectError::Source(SourceError::Missing { .. })) => Ok(DeclaredTable::empty(file)),
        read => read,
    }
}

/// The lowest severity that is reported.
fn minimum_severity(args: &CheckArgs, origin: CodeOrigin) -> Severity {
    match (args.strict, args.lenient) {
        (true, _) => Severity::Note,
        (_, true) => Severity::Refuted,
        _ if origin == CodeOrigin::HandWritten => Severity::Unproven,
        _ => Severity::Refuted,
    }
}
