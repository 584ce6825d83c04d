//! `unspool check --run`: compares the table with the execution.

use std::io::{self, Write};
use std::path::Path;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use serde_json::{Value, json};
use unspool_check::LocatedFinding;
use unspool_elf::demangle;
use unspool_single_step::{
    FunctionRun, ModuleRun, ObservedFinding, RowSource, StepReport, StepRequest,
};

use super::text::report;
use crate::args::Format;
use crate::args::check::StepArgs;
use crate::commands;
use crate::output::{self, EscapedText, ExitCodes, JsonLayout};

/// The results of one module, with the context of findings.
pub(super) struct LocatedRun<'r> {
    pub(super) module: ModuleRun<'r>,
    findings: Vec<LocatedFinding>,
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
    let is_failure = report.has_findings() || report.timed_out || report.is_without_calls();
    Ok(ExitCode::from(if is_failure {
        ExitCodes::FINDINGS
    } else {
        0
    }))
}

/// Names the program as in the command.
fn show_as_given<'r>(modules: &mut [LocatedRun<'r>], args: &'r StepArgs) {
    let given = args.cmd.first().map(Path::new);
    let Some((given, Ok(program))) = given.map(|given| (given, given.canonicalize())) else {
        return;
    };
    let own = modules.iter_mut().find(|run| run.module.path == program);
    if let Some(own) = own {
        own.module.path = given;
    }
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
    if report.is_without_calls() {
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
pub(super) fn modules(report: &StepReport, rows: RowSource) -> anyhow::Result<Vec<LocatedRun<'_>>> {
    let modules = report.by_module().into_iter().map(|module| {
        let findings = module.located_findings(rows)?;
        Ok(LocatedRun { module, findings })
    });
    modules.collect()
}

pub(super) fn print_text(out: &mut impl Write, modules: &[LocatedRun<'_>]) -> io::Result<()> {
    for LocatedRun { module, findings } in modules {
        for finding in findings {
            report(out, module.path, finding)?;
        }
        let count = module.functions.len();
        let functions = || module.functions.iter();
        let counts = module.counts();
        writeln!(
            out,
            "{}: {} of {count} functions called, {} of {} rows executed: {} findings",
            output::path(module.path),
            counts.entered,
            counts.executed,
            counts.executed + counts.not_executed,
            findings.len(),
        )?;
        if module.functions_skipped > 0 {
            writeln!(
                out,
                "  functions from compilers, left out: {} (--function NAME takes one, --module NAME all of a file)",
                module.functions_skipped
            )?;
        }
        let retired: Vec<&str> = functions()
            .filter(|function| function.was_retired)
            .filter_map(|function| function.name.as_deref())
            .collect();
        if !retired.is_empty() {
            writeln!(
                out,
                "  retired after long showing nothing new, so not all their paths were compared (--visits K compares more): {}",
                EscapedText(&retired.join(", "))
            )?;
        }
        let missing = counts.missing;
        if missing > 0 {
            writeln!(out, "  {missing} executed instructions have no row")?;
        }
    }
    Ok(())
}

fn print_json(
    out: &mut impl Write,
    report: &StepReport,
    modules: &[LocatedRun<'_>],
) -> io::Result<()> {
    let files: Vec<Value> = modules.iter().map(as_json).collect();
    let body = json!({
        "unspool_version": env!("CARGO_PKG_VERSION"),
        "command": {
            "status": report.status.map(describe),
            "timed_out": report.timed_out,
        },
        "instructions_stepped": report.steps,
        "instructions_checked": report.checked,
        "instructions_uncertain": report.uncertain,
        "files": files,
    });
    output::write_document(out, JsonLayout::Pretty, "check-run", &body)
}

pub(super) fn as_json(run: &LocatedRun<'_>) -> Value {
    let module = &run.module;
    let finding = |(located, observed): (&LocatedFinding, &&ObservedFinding)| {
        let mut finding = json!(located);
        if let Some(fields) = finding.as_object_mut() {
            fields.insert("count".to_owned(), json!(observed.times));
        }
        finding
    };
    let findings = run.findings.iter().zip(&module.findings);
    let findings: Vec<Value> = findings.map(finding).collect();
    let function = |function: &&FunctionRun| {
        let never = function.rows.not_executed.iter();
        json!({
            "name": function.name.as_deref().map(demangle),
            "address": output::address(function.start.0),
            "entry_count": function.entered,
            "rows_executed": function.rows.executed,
            "unexecuted_row_addresses": never.map(|at| output::address(at.0)).collect::<Vec<_>>(),
            "instructions_without_row": function.rows.missing,
            "retired": function.was_retired,
        })
    };
    json!({
        "file": module.path.to_string_lossy(),
        "functions": module.functions.iter().map(function).collect::<Vec<_>>(),
        "functions_skipped": module.functions_skipped,
        "findings": findings,
    })
}
