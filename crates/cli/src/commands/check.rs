//! `unspool check`.

use std::fs;
use std::io::Write as _;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};
use serde_json::{Value, json};
use unspool_assembly::AssemblySource;
use unspool_check::{
    Baseline, CheckOptions, FileReport, FindingCode, LocatedFinding, SourceTexts, Strictness,
    SubjectError, Suppressions, Suppressor, WorkflowCommands, is_kernel_module, sarif_log,
};
use unspool_elf::{Container, DebugFiles, ElfFile, ModuleError, SearchRoots};
use unspool_files::PlainJson;
use unspool_table_store::SourceError;

use super::cc::CcAssembler;
use super::elf_files::{self, UnreadableFolders};
use crate::args::check::{CheckArgs, CheckFormat};
use crate::output::{self, ExitCodes};

#[cfg(target_arch = "x86_64")]
mod call;
mod fix;
#[cfg(target_arch = "x86_64")]
mod host;
pub(crate) mod repair;
#[cfg(target_arch = "x86_64")]
mod run;
mod text;

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
    let mut suppressor = suppressor(args)?;
    let (paths, unreadable) = files(&args.files)?;
    let mut checked = Vec::new();
    let mut failed = Vec::new();
    for (path, error) in unreadable {
        output::error(&format_args!("{error:#}"));
        failed.push(super::error_object(&path, &error));
    }
    for path in &paths {
        let edited = match args.fix {
            true if AssemblySource::is_assembly_path(path) => fix::edit(path, args).map(drop),
            true => repair::repair(path),
            false => Ok(()),
        };
        let files = edited.and_then(|()| check(path, args, &mut suppressor));
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
    let is_empty = |file: &FileReport| file.totals.rows == 0 && file.findings.is_empty();
    if !args.step_args.function.is_empty() && checked.iter().all(is_empty) {
        bail!(
            "no file has the function {}",
            args.step_args.function.join(", ")
        );
    }
    if args.own.is_some() {
        FileReport::remove_duplicates(&mut checked);
    }
    print(args, &checked, &failed)?;
    end(args, &suppressor, &checked)?;
    let has_findings = !args.write_baseline && checked.iter().any(FileReport::has_findings);
    Ok(ExitCode::from(match (failed.is_empty(), has_findings) {
        (false, _) => ExitCodes::COULD_NOT_RUN,
        (true, true) => ExitCodes::FINDINGS,
        (true, false) => 0,
    }))
}

/// The files that a command line names, and what can be checked below the folders that it names.
fn files(named: &[PathBuf]) -> anyhow::Result<(Vec<PathBuf>, UnreadableFolders)> {
    if !named.iter().any(|path| path.is_dir()) {
        return Ok((named.to_vec(), Vec::new()));
    }
    let is_checkable = |path: &Path| {
        AssemblySource::is_assembly_path(path)
            || elf_files::is_elf(path)
            || elf_files::begins_with(path, *b"!<arch>\n")
    };
    let (found, unreadable) = elf_files::find_those(named, is_checkable);
    if found.is_empty() && unreadable.is_empty() {
        let folder = named.first().map_or(Path::new("."), PathBuf::as_path);
        bail!(
            "{}: a folder without ELF files, archives or assembly source",
            folder.display()
        );
    }
    Ok((found, unreadable))
}

/// The explanation of a kind of finding.
fn explanation(code: FindingCode) -> String {
    format!("{code} {}\n\n{}\n", code.name(), code.explanation())
}

impl CheckArgs {
    fn options(&self) -> CheckOptions {
        CheckOptions {
            strictness: match (self.strict, self.lenient) {
                (true, _) => Strictness::Strict,
                (_, true) => Strictness::Lenient,
                _ => Strictness::ByOrigin,
            },
            own: self.own.clone(),
            functions: self.step_args.function.clone(),
            convention: self.preserves,
            threads: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
        }
    }
}

/// Reads the files of suppressions that the command line names.
fn suppressor(args: &CheckArgs) -> anyhow::Result<Suppressor> {
    let files = args.suppressions.iter().map(|path| {
        let suppressions = Suppressions::parse(&super::read_text(path)?);
        let suppressions = suppressions.map_err(|error| anyhow!("{}:{error}", path.display()))?;
        Ok((path.clone(), suppressions))
    });
    let baseline = match &args.baseline {
        Some(path) if !args.write_baseline => Baseline::from_json(&super::read_text(path)?)
            .with_context(|| path.display().to_string())?,
        _ => Baseline::default(),
    };
    Ok(Suppressor {
        sources: SourceTexts::new(read_source),
        files: files.collect::<anyhow::Result<_>>()?,
        baseline,
    })
}

/// Reads a source file that debug information names, if it is there and not too large.
fn read_source(path: &Path) -> Option<(PathBuf, String)> {
    /// The largest source file to read, in bytes.
    const MAX_SOURCE_BYTES: u64 = 64 << 20;
    let path = fs::canonicalize(path).ok()?;
    let text = unspool_files::read(&path, MAX_SOURCE_BYTES).ok()?;
    Some((path, String::from_utf8(text).ok()?))
}

/// Prints the reports, and the objects of files without one.
fn print(args: &CheckArgs, checked: &[FileReport], failed: &[Value]) -> anyhow::Result<()> {
    match args.format {
        CheckFormat::Text => text::print(checked, args.summary)?,
        CheckFormat::Json => {
            let checked = checked.iter().map(serde_json::to_value);
            let files = checked.chain(failed.iter().cloned().map(Ok));
            let body = json!({
                "unspool_version": env!("CARGO_PKG_VERSION"),
                "files": files.collect::<Result<Vec<_>, _>>()?,
            });
            output::document("check", &body)?;
        }
        CheckFormat::Sarif => {
            let mut out = output::results();
            let log = sarif_log(checked, env!("CARGO_PKG_VERSION"));
            serde_json::to_writer_pretty(PlainJson(&mut out), &log)?;
            writeln!(out)?;
            out.flush()?;
        }
        CheckFormat::Github => {
            let mut out = output::text();
            for file in checked {
                write!(out, "{}", WorkflowCommands(file))?;
            }
            out.flush()?;
        }
    }
    Ok(())
}

/// Reports unused suppressions, and writes the baseline on request.
fn end(args: &CheckArgs, suppressor: &Suppressor, checked: &[FileReport]) -> anyhow::Result<()> {
    for (path, file) in &suppressor.files {
        for line in file.unused() {
            let path = path.display();
            output::notice(&format_args!("{path}:{line}: suppresses no finding"));
        }
    }
    let Some(path) = &args.baseline else {
        return Ok(());
    };
    let name = path.display();
    if args.write_baseline {
        let baseline = Baseline::from_reports(checked);
        let mut text = serde_json::to_vec_pretty(&baseline)?;
        text.push(b'\n');
        super::write(path, &text, None)?;
        let written = baseline.count();
        output::notice(&format_args!("{name}: {written} findings written"));
    } else if let gone @ 1.. = suppressor.baseline.count_gone(checked) {
        output::notice(&format_args!(
            "{name}: {gone} findings are gone; --write-baseline writes it anew"
        ));
    }
    Ok(())
}

/// The report of a file, or its name and why it was not checked.
type CheckResult = Result<FileReport, (PathBuf, anyhow::Error)>;

/// Checks a file, or the members of an archive.
fn check(
    path: &Path,
    args: &CheckArgs,
    suppressor: &mut Suppressor,
) -> anyhow::Result<Vec<CheckResult>> {
    let options = args.options();
    if AssemblySource::is_assembly_path(path) {
        let object = CcAssembler::from_environment().assemble_file(path)?;
        let file = Arc::new(ElfFile::from_bytes(path, object)?);
        let mut checked = FileReport::from_assembled(&file, &options, suppressor)?;
        if !args.fix {
            fix::advise(path, args, &file, &mut checked.findings)?;
        }
        use_given_path(path, &mut checked.findings);
        return Ok(vec![Ok(checked)]);
    }
    let mut check_elf = |file: ElfFile| {
        let file = Arc::new(file);
        let debug = DebugFiles::locate(&file, &SearchRoots::from_environment());
        let checked = FileReport::from_elf(&file, &debug, &options, suppressor)?;
        if checked.lacks_lines {
            output::notice(&format_args!(
                "{}: no line numbers show whose code it is: nothing is reported (build with `debug = \"line-tables-only\"`)",
                file.path().display()
            ));
        }
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
