//! `unspool check --call`: calls one function with generated arguments.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{anyhow, bail};
use serde_json::{Value, json};
use unspool_elf::{DebugFiles, ElfFile, SearchRoots, Symbols, demangle};
use unspool_single_step::{
    ArgumentInput, CallEnd, CallReport, CallRequest, CallResult, ClobberedRegister, StopLocation,
};

use super::host::CallHost;
use super::run::{self, LocatedRun};
use crate::args::Format;
use crate::args::check::{CallArgument, CheckArgs};
use crate::commands;
use crate::output::{self, EscapedText, ExitCodes, JsonLayout};

/// The argument registers.
const ARGUMENTS: [&str; 6] = ["rdi", "rsi", "rdx", "rcx", "r8", "r9"];

/// The data of the report.
struct CallSummary<'r> {
    path: &'r Path,
    function: &'r str,
    seed: u64,
    calls: &'r [CallResult],
    /// The number of calls that were not made.
    missing: usize,
    modules: Vec<LocatedRun<'r>>,
    host: &'r CallHost,
    /// Symbols for the locations where calls ended.
    symbols: Option<Symbols>,
}

pub(super) fn run(args: &CheckArgs, function: &str, format: Format) -> anyhow::Result<ExitCode> {
    let [path] = args.files.as_slice() else {
        bail!("--call takes one file");
    };
    let host = CallHost::new(path, function)?;
    let limit = args
        .step_args
        .time_limit
        .map_or(10, |limit| limit.get().into());
    let arguments = args.call_args.arg.iter().map(|argument| match *argument {
        CallArgument::Pointer => ArgumentInput::Pointer,
        CallArgument::Range(least, most) => ArgumentInput::Between(least, most),
    });
    let rows = args.step_args.from.to_step();
    let report = unspool_single_step::call(&CallRequest {
        host: host.program.clone(),
        function: function.to_owned(),
        arguments: arguments.collect(),
        calls: args.call_args.calls.get(),
        seed: args.call_args.seed,
        rows,
        visits: args.step_args.visits.get(),
        time_limit: Duration::from_secs(limit),
    });
    // A temporary file's name would not help the user.
    let made = host.program.file.display().to_string();
    let report = report.map_err(|error| {
        let given = path.display().to_string();
        anyhow!(error.to_string().replace(&made, &given))
    })?;
    let mut modules = run::modules(&report.report, rows)?;
    for run in &mut modules {
        run.module.path = path;
    }
    let summary = CallSummary {
        path,
        function,
        seed: args.call_args.seed,
        calls: &report.calls,
        missing: usize::try_from(args.call_args.calls.get())
            .map_or(0, |calls| calls.saturating_sub(report.calls.len())),
        modules,
        host: &host,
        symbols: symbols(&host.program.file, &report),
    };
    let mut out = Vec::new();
    match format {
        Format::Text => print_text(&mut out, &summary)?,
        Format::Json => print_json(&mut out, &summary)?,
    }
    match &args.step_args.output {
        Some(path) => commands::write(path, &out, None)?,
        None => output::print(&out)?,
    }
    let has_returned =
        |result: &CallResult| matches!(&result.end, CallEnd::Returned(lost) if lost.is_empty());
    let is_clean = report.calls.iter().all(has_returned) && !report.report.has_findings();
    Ok(ExitCode::from(if is_clean {
        0
    } else {
        ExitCodes::FINDINGS
    }))
}

/// The symbols around the locations in the file where calls ended.
fn symbols(file: &Path, report: &CallReport) -> Option<Symbols> {
    let spots = report.calls.iter().filter_map(|called| match &called.end {
        CallEnd::Signal(_, spot) | CallEnd::TimedOut(Some(spot)) => spot.vaddr,
        _ => None,
    });
    let addresses: Vec<_> = spots.collect();
    if addresses.is_empty() {
        return None;
    }
    let file = ElfFile::open(file).ok()?;
    let debug = DebugFiles::locate(&file, &SearchRoots::from_environment());
    Some(Symbols::for_addresses(
        &file,
        debug.debug.as_deref(),
        &addresses,
    ))
}

impl<'r> CallSummary<'r> {
    /// The function at an address in the file, and the distance from its start.
    fn symbol_at(&self, location: &StopLocation) -> Option<(String, u64)> {
        let at = location.vaddr?;
        let symbol = self.symbols.as_ref()?.lookup(at)?;
        let distance = at.0.saturating_sub(symbol.address.0);
        Some((demangle(&symbol.name).into_owned(), distance))
    }

    fn describe(&self, location: &StopLocation) -> String {
        let file = location.file.as_deref();
        match (self.symbol_at(location), location.vaddr, file) {
            (Some((name, distance)), ..) => format!("{name}+{distance:#x}"),
            (None, Some(at), _) => at.to_string(),
            (None, None, Some(file)) => format!("{:#x} in {}", location.address, file.display()),
            (None, None, None) => format!("{:#x}, where no file is mapped", location.address),
        }
    }

    /// The undefined symbol whose use ended a call.
    fn undefined(&self, result: &CallResult) -> Option<Cow<'r, str>> {
        match &result.end {
            CallEnd::Signal(_, spot) => Some(self.host.undefined_at(spot)?.0),
            _ => None,
        }
    }

    /// How a call ended that did not return correctly.
    fn failure(&self, end: &CallEnd) -> Option<String> {
        match end {
            CallEnd::Returned(lost) if lost.is_empty() => None,
            CallEnd::Returned(lost) => {
                let lost: Vec<String> = lost.iter().map(describe_clobbered).collect();
                Some(format!("returned, but {}", lost.join(", ")))
            }
            CallEnd::Signal(signal, spot) => {
                let signal = signal_name(*signal);
                Some(match self.host.undefined_at(spot) {
                    Some((name, true)) => {
                        format!("ended by {signal}: it calls {name}, which is not defined")
                    }
                    Some((name, false)) => format!(
                        "ended by {signal} at {}: it uses {name}, which is not defined",
                        self.describe(spot)
                    ),
                    None => format!("ended by {signal} at {}", self.describe(spot)),
                })
            }
            CallEnd::TimedOut(Some(spot)) => Some(format!(
                "had not returned in time (--time-limit), and was at {}",
                self.describe(spot)
            )),
            CallEnd::TimedOut(None) => Some("had not returned in time (--time-limit)".to_owned()),
            CallEnd::Ended(status) => Some(format!(
                "did not return: the process ended, {}",
                run::describe(*status)
            )),
        }
    }
}

fn describe_clobbered(clobbered: &ClobberedRegister) -> String {
    let ClobberedRegister {
        register,
        expected,
        found,
    } = clobbered;
    format!("{register} is {found:#x}, and was to be {expected:#x}")
}

fn signal_name(signal: i32) -> Cow<'static, str> {
    match unspool_process::signal_name(signal) {
        Some(name) => Cow::Borrowed(name),
        None => Cow::Owned(format!("signal {signal}")),
    }
}

fn print_text(out: &mut impl Write, summary: &CallSummary<'_>) -> io::Result<()> {
    run::print_text(out, &summary.modules)?;
    for function in summary.modules.iter().flat_map(|run| &run.module.functions) {
        let never = &function.rows.not_executed;
        if !never.is_empty() {
            let distances = never.iter().map(|at| at.0.saturating_sub(function.start.0));
            let places: Vec<String> = distances
                .map(|distance| format!("+{distance:#x}"))
                .collect();
            let name = EscapedText(function.name.as_deref().unwrap_or_default());
            writeln!(
                out,
                "{name}: never executed: the rows at {}",
                places.join(" ")
            )?;
        }
    }
    let mut failed = 0;
    for (number, called) in (1..).zip(summary.calls) {
        let Some(failure) = summary.failure(&called.end) else {
            continue;
        };
        failed += 1;
        let failure = EscapedText(&failure);
        let values = ARGUMENTS.iter().zip(called.arguments);
        let values: Vec<String> = values
            .map(|(name, value)| format!("{name}={value:#x}"))
            .collect();
        writeln!(out, "{}: call {number} {failure}", summary.function)?;
        writeln!(out, "    called with {}", values.join(" "))?;
    }
    let count = summary.calls.len();
    writeln!(
        out,
        "{}: {} of {count} calls returned with all registers preserved (--seed {})",
        summary.function,
        count - failed,
        summary.seed
    )?;
    let undefined = summary.calls.iter().filter_map(|it| summary.undefined(it));
    let undefined: BTreeSet<Cow<'_, str>> = undefined.collect();
    if !undefined.is_empty() {
        let undefined: Vec<&str> = undefined.iter().map(Cow::as_ref).collect();
        writeln!(
            out,
            "{}: link {} with what defines {}, and name that program or shared object",
            summary.function,
            output::path(summary.path),
            EscapedText(&undefined.join(", "))
        )?;
    }
    if summary.missing > 0 {
        let missing = summary.missing;
        let function = summary.function;
        writeln!(
            out,
            "{function}: {missing} calls were not made, since one had not returned in time"
        )?;
    }
    Ok(())
}

fn print_json(out: &mut impl Write, summary: &CallSummary<'_>) -> io::Result<()> {
    let body = json!({
        "unspool_version": env!("CARGO_PKG_VERSION"),
        "function": summary.function,
        "seed": summary.seed,
        "calls_skipped": summary.missing,
        "calls": summary.calls.iter().map(|called| as_json(summary, called)).collect::<Vec<_>>(),
        "files": summary.modules.iter().map(run::as_json).collect::<Vec<_>>(),
    });
    output::write_document(out, JsonLayout::Pretty, "check-call", &body)
}

fn as_json(summary: &CallSummary<'_>, result: &CallResult) -> Value {
    let values = ARGUMENTS.iter().zip(result.arguments);
    let arguments: serde_json::Map<String, Value> = values
        .map(|(name, value)| ((*name).to_owned(), json!(output::address(value))))
        .collect();
    let location = |location: &StopLocation| {
        let place = summary.symbol_at(location);
        // The temporary file is removed afterwards.
        let file = match location.vaddr {
            Some(_) => Some(summary.path),
            None => location.file.as_deref(),
        };
        json!({
            "address": output::address(location.vaddr.map_or(location.address, |at| at.0)),
            "file": file.map(Path::to_string_lossy),
            "function": place.as_ref().map(|(name, _)| name),
            "offset": place.as_ref().map(|(_, offset)| offset),
        })
    };
    let (outcome, signal, location) = match &result.end {
        CallEnd::Returned(_) => ("returned", None, None),
        CallEnd::Signal(signal, at) => ("signal", Some(signal_name(*signal)), Some(location(at))),
        CallEnd::TimedOut(at) => ("timeout", None, at.as_ref().map(location)),
        CallEnd::Ended(_) => ("exited", None, None),
    };
    let clobbered: Vec<Value> = match &result.end {
        CallEnd::Returned(clobbered) => clobbered.iter().map(clobbered_as_json).collect(),
        _ => Vec::new(),
    };
    let status = match &result.end {
        CallEnd::Ended(status) => Some(run::describe(*status)),
        _ => None,
    };
    json!({
        "arguments": arguments,
        "outcome": outcome,
        "signal": signal,
        "exit_status": status,
        "location": location,
        "undefined_symbol": summary.undefined(result),
        "clobbered_registers": clobbered,
    })
}

fn clobbered_as_json(clobbered: &ClobberedRegister) -> Value {
    json!({
        "register": clobbered.register,
        "expected": output::address(clobbered.expected),
        "actual": output::address(clobbered.found),
    })
}
