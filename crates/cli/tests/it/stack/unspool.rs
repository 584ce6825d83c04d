//! Runs the command under test and reads its reports.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use unspool_testing::{Finish as _, Folder, TextOutput};

use crate::harness;
use crate::json;
use crate::stack::compare::{ComparedFrame, REGISTERS};

/// The command with its own cache below `directory`.
pub(crate) fn unspool(directory: &Folder) -> Command {
    let mut command = harness::unspool();
    command.env("XDG_CACHE_HOME", directory.join("cache"));
    command
}

/// The output of a run, as text.
#[derive(Debug)]
pub(crate) struct Printed {
    pub(crate) status: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Printed {
    /// Standard error without notices about stripped files: Debian's programs are.
    pub(crate) fn other_notices(&self) -> String {
        let lines = self.err.split_inclusive('\n');
        lines.filter(|line| !line.contains("stripped")).collect()
    }
}

/// Runs `unspool stack` with these arguments.
pub(crate) fn stack(directory: &Folder, arguments: &[&str]) -> Printed {
    let mut command = unspool(directory);
    printed(command.arg("stack").args(arguments))
}

pub(crate) fn printed(command: &mut Command) -> Printed {
    let TextOutput { status, out, err } = command.finish();
    Printed {
        status: status.code().unwrap_or_else(|| panic!("{status}")),
        out,
        err,
    }
}

/// A report with `--format json`.
pub(crate) struct PrintedReport {
    pub(crate) json: Value,
    pub(crate) threads: BTreeMap<u32, PrintedStack>,
}

/// One thread's stack.
#[derive(Debug)]
pub(crate) struct PrintedStack {
    /// Why the walk ended.
    pub(crate) end: String,
    pub(crate) is_root: bool,
    pub(crate) frames: Vec<ComparedFrame>,
    /// The evidence of each frame; the innermost has none.
    pub(crate) evidence: Vec<Option<String>>,
}

impl PrintedStack {
    /// The evidence of frames found without a table.
    pub(crate) fn guesses(&self) -> Vec<&str> {
        let evidence = self.evidence.iter().flatten().map(String::as_str);
        evidence.filter(|name| *name != "cfi").collect()
    }
}

/// Runs `unspool stack --format json --registers` with these arguments, which must succeed.
pub(crate) fn report(directory: &Folder, arguments: &[&str]) -> PrintedReport {
    let mut all = vec!["--format", "json", "--registers"];
    all.extend(arguments);
    let printed = stack(directory, &all);
    assert_eq!((printed.status, printed.err.as_str()), (0, ""));
    parse(&printed.out)
}

/// A report of a core file.
pub(crate) fn report_core(directory: &Folder, core: &Path, program: &str) -> PrintedReport {
    report(
        directory,
        &["--core", core.to_str().unwrap(), "--exe", program],
    )
}

pub(crate) fn parse(text: &str) -> PrintedReport {
    let json = json::document(text);
    assert_eq!(json["schema"], "unspool.stack");
    let threads = json["threads"].as_array().unwrap();
    let with_tid = |thread: &Value| {
        let tid = u32::try_from(thread["tid"].as_u64().unwrap()).unwrap();
        (tid, parse_stack(thread))
    };
    PrintedReport {
        threads: threads.iter().map(with_tid).collect(),
        json,
    }
}

fn parse_stack(thread: &Value) -> PrintedStack {
    let frames = thread["frames"].as_array().unwrap();
    let evidence = |frame: &Value| frame["evidence"].as_str().map(str::to_owned);
    let mut parsed: Vec<ComparedFrame> = frames.iter().map(parse_frame).collect();
    // The frame below an interrupted one is the trampoline's.
    for at in 1..parsed.len() {
        parsed[at - 1].is_trampoline = frames[at]["interrupted"] == true;
    }
    PrintedStack {
        end: thread["end"]["code"].as_str().unwrap().to_owned(),
        is_root: thread["end"]["root"].as_bool().unwrap(),
        frames: parsed,
        evidence: frames.iter().map(evidence).collect(),
    }
}

fn parse_frame(frame: &Value) -> ComparedFrame {
    let function = frame["functions"]
        .as_array()
        .and_then(|functions| functions.last()?["function"].as_str());
    let names = [function, frame["symbol"].as_str()];
    let registers = REGISTERS.map(|name| address(&frame["registers"][name]));
    ComparedFrame {
        pc: address(&frame["pc"]).unwrap(),
        cfa: address(&frame["cfa"]),
        registers,
        names: names.into_iter().flatten().map(str::to_owned).collect(),
        module: frame["module"].as_str().map(str::to_owned),
        symbol_start: symbol_start(frame),
        is_trampoline: false,
    }
}

fn symbol_start(frame: &Value) -> Option<u64> {
    address(&frame["module_address"])?.checked_sub(frame["symbol_offset"].as_u64()?)
}

fn address(value: &Value) -> Option<u64> {
    let text = value.as_str()?;
    let digits = text.strip_prefix("0x").unwrap();
    Some(u64::from_str_radix(digits, 16).unwrap())
}
