//! `unspool check --run`: compares the table with the execution.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use unspool_check::{
    CheckSubject, CodeOrigin, DeclaredTable, Finding, FindingLocator, LocatedFinding, Severity,
};
use unspool_elf::{DebugFiles, ElfFile, SearchRoots, demangle};
use unspool_single_step::{FunctionRun, RowSource, StepReport, StepRequest};

use super::text::report;
use crate::args::{Format, StepArgs};
use crate::commands;
use crate::output::{self, EscapedText, ExitCodes, JsonLayout};

/// The results of one module.
pub(super) struct ModuleRun<'r> {
    pub(super) path: &'r Path,
    pub(super) functions: Vec<&'r FunctionRun>,
    /// The number of other functions, which are compiled.
    functions_skipped: usize,
    findings: Vec<LocatedFinding>,
    /// How often each finding occurred.
    times: Vec<u64>,
}

pub(super) fn run(args: &StepArgs, format: Format) -> anyhow::Result<ExitCode> {
    if let Some(path) = &args.output {
        commands::check_writable(path)?;
    }
    let limit = args.time_limit.map_or(600, |limit| limit.get().into());
    let rows = args.from.to_step();
    let report = unspool_single_step::run(&StepRequest {
        command: args.cmd.clone(),
        functions: args.function.clone(),
        modules: args.module.clone(),
        rows,
        visits: args.visits.get(),
        time_limit: Duration::from_secs(limit),
    })?;
    let mut modules = modules(&report, rows)?;
    if format == Format::Text {
        show_as_given(&mut modules, args);
    }
    let mut out = Vec::new();
    match format {
        Format::Text => print_text(&mut out, &modules)?,
        Format::Json => print_json(&mut out, &report, &modules)?,
    }
    match &args.output {
        Some(path) => commands::write(path, &out, None)?,
        // The command may write results of its own to standard output.
        None => io::stderr().write_all(&out)?,
    }
    report_limits(&report, limit);
    let is_failure = has_findings(&report) || report.timed_out || is_without_calls(&report);
    Ok(ExitCode::from(match is_failure {
        true => ExitCodes::FINDINGS,
        false => 0,
    }))
}

/// Whether the report has more than notes.
pub(super) fn has_findings(report: &StepReport) -> bool {
    let mut findings = report.findings.iter();
    findings.any(|found| found.finding.severity != Severity::Note)
}

/// Names the program as in the command.
fn show_as_given<'r>(modules: &mut [ModuleRun<'r>], args: &'r StepArgs) {
    let given = args.cmd.first().map(Path::new);
    let Some((given, Ok(program))) = given.map(|given| (given, given.canonicalize())) else {
        return;
    };
    let own = modules.iter_mut().find(|module| module.path == program);
    if let Some(module) = own {
        module.path = given;
    }
}

/// Whether no function in scope was called: the request was not carried out.
fn is_without_calls(report: &StepReport) -> bool {
    let mut functions = report.functions.iter();
    functions.all(|function| function.entered == 0)
}

/// Reports limits that weaken the result.
fn report_limits(report: &StepReport, limit: u64) {
    if report.timed_out {
        output::notice(&format_args!(
            "the command had not ended after {limit} seconds and was killed: --time-limit"
        ));
    } else if let Some(status) = report.status.filter(|status| !status.success()) {
        output::notice(&format_args!("the command failed: {}", describe(status)));
    }
    if is_without_calls(report) {
        let count = report.functions.len();
        output::notice(&format_args!(
            "none of the {count} functions in scope was called: nothing was checked"
        ));
    }
    if report.uncertain > 0 {
        let count = report.uncertain;
        output::notice(&format_args!(
            "{count} instructions were not checked: the stack could not be followed there"
        ));
    }
}

pub(super) fn describe(status: ExitStatus) -> String {
    status.to_string()
}

/// The results by module, with the context of findings.
pub(super) fn modules(report: &StepReport, rows: RowSource) -> anyhow::Result<Vec<ModuleRun<'_>>> {
    let mut modules: BTreeMap<&PathBuf, Vec<&FunctionRun>> = BTreeMap::new();
    for function in &report.functions {
        modules.entry(&function.module).or_default().push(function);
    }
    let mut all = Vec::with_capacity(modules.len());
    for (path, functions) in modules {
        let found = report.findings.iter().filter(|found| found.module == *path);
        let (findings, times) = found
            .map(|found| (found.finding.clone(), found.times))
            .unzip();
        all.push(ModuleRun {
            functions_skipped: report.left_out.get(path).copied().unwrap_or_default(),
            findings: locate_findings(path, rows, findings)?,
            path,
            functions,
            times,
        });
    }
    Ok(all)
}

fn locate_findings(
    path: &Path,
    rows: RowSource,
    findings: Vec<Finding>,
) -> anyhow::Result<Vec<LocatedFinding>> {
    if findings.is_empty() {
        return Ok(Vec::new());
    }
    let file = Arc::new(ElfFile::open(path)?);
    let debug = DebugFiles::locate(&file, &SearchRoots::from_environment());
    let declarations = DeclaredTable::from_table(rows.read(&file));
    let subject = CheckSubject::new(&file, &declarations, CodeOrigin::from_file(&file))?;
    let Some(mut surroundings) = FindingLocator::new(&file, &debug, &subject, &findings) else {
        return Ok(Vec::new());
    };
    let findings = findings.into_iter().enumerate();
    let located_findings = findings.map(|(number, finding)| {
        let source = surroundings.source(finding.address);
        surroundings.locate(finding, source, number)
    });
    Ok(located_findings.collect())
}

pub(super) fn print_text(out: &mut impl Write, modules: &[ModuleRun<'_>]) -> io::Result<()> {
    for module in modules {
        for finding in &module.findings {
            report(out, module.path, finding)?;
        }
        let count = module.functions.len();
        let functions = || module.functions.iter();
        let entered = functions().filter(|function| function.entered > 0).count();
        let executed: usize = functions().map(|function| function.rows.executed).sum();
        let never: usize = functions()
            .map(|function| function.rows.not_executed.len())
            .sum();
        writeln!(
            out,
            "{}: {entered} of {count} functions called, {executed} of {} rows executed: {} findings",
            output::path(module.path),
            executed + never,
            module.findings.len(),
        )?;
        if module.functions_skipped > 0 {
            writeln!(
                out,
                "  functions from compilers, left out: {} (--function NAME takes one, --module NAME all of a file)",
                module.functions_skipped
            )?;
        }
        let let_be: Vec<&str> = functions()
            .filter(|function| function.was_retired)
            .filter_map(|function| function.name.as_deref())
            .collect();
        if !let_be.is_empty() {
            writeln!(
                out,
                "  retired after long showing nothing new, so not all their paths were compared (--visits K compares more): {}",
                EscapedText(&let_be.join(", "))
            )?;
        }
        let missing: usize = functions().map(|function| function.rows.missing).sum();
        if missing > 0 {
            writeln!(out, "  {missing} executed instructions have no row")?;
        }
    }
    Ok(())
}

fn print_json(
    out: &mut impl Write,
    report: &StepReport,
    modules: &[ModuleRun<'_>],
) -> io::Result<()> {
    let files: Vec<Value> = modules.iter().map(as_json).collect();
    let body = json!({
        "unspool": env!("CARGO_PKG_VERSION"),
        "command": {
            "status": report.status.map(describe),
            "killed": report.timed_out,
        },
        "steps": report.steps,
        "checked": report.checked,
        "uncertain": report.uncertain,
        "files": files,
    });
    output::write_document(out, JsonLayout::Pretty, "check-run", &body)
}

pub(super) fn as_json(module: &ModuleRun<'_>) -> Value {
    let finding = |(located_finding, times): (&LocatedFinding, &u64)| {
        let mut finding = json!(located_finding);
        if let Some(fields) = finding.as_object_mut() {
            fields.insert("times".to_owned(), json!(times));
        }
        finding
    };
    let findings: Vec<Value> = module
        .findings
        .iter()
        .zip(&module.times)
        .map(finding)
        .collect();
    let function = |function: &&FunctionRun| {
        let never = function.rows.not_executed.iter();
        json!({
            "name": function.name.as_deref().map(demangle),
            "address": output::address(function.start.0),
            "entered": function.entered,
            "rows_executed": function.rows.executed,
            "rows_never_executed": never.map(|at| output::address(at.0)).collect::<Vec<_>>(),
            "executed_without_row": function.rows.missing,
            "let_be": function.was_retired,
        })
    };
    json!({
        "file": module.path.to_string_lossy(),
        "functions": module.functions.iter().map(function).collect::<Vec<_>>(),
        "functions_left_out": module.functions_skipped,
        "findings": findings,
    })
}
