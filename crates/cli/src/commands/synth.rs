//! `unspool synth`.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use serde_json::{Value, json};
use unspool_elf::{Symbols, demangle};
use unspool_symbols::ModuleFinder;
use unspool_synthesis::{FunctionCoverage, MissingReason, Synthesis};
use unspool_table_store::{self as tables, Store, eh_frame};

use super::compile::as_f64;
use crate::args::Format;
use crate::args::tables::{Emit, SynthArgs};
use crate::output::{self, EscapedText};

pub(crate) fn run(args: &SynthArgs) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(
        args.into.is_none() || args.emit != Some(Emit::Table),
        "--into takes an ELF file: leave out --emit table, or use --output"
    );
    let (opened, store) = (super::open(&args.file)?, Store::from_environment());
    let file = &*store.stable(&opened);
    let own = tables::read_if_any(file)?;
    let (debug, _) = ModuleFinder::from_environment().debug_files(file, None, &|_| {});
    let symbols = Symbols::new(file, debug.debug.as_deref());
    let synthesis = tables::synthesize(file, &symbols, &own);
    let synthesis = synthesis.with_context(|| args.file.display().to_string())?;
    let emit = match &args.into {
        Some(_) => Emit::EhFrame,
        None => Emit::Table,
    };
    let target = args.into.as_ref().or(args.output.as_ref());
    let (written, bytes) = match (args.emit.unwrap_or(emit), target) {
        (Emit::EhFrame, Some(output)) => {
            let made = eh_frame::add_entries(file, &own, &synthesis.table)?;
            file.check_unchanged()?;
            let permissions = fs::metadata(&args.file)?.permissions();
            super::write(output, &made.elf, Some(permissions))?;
            (output.clone(), made.table_bytes)
        }
        (_, output) => {
            let encoded = tables::compile_synthesized(file, &synthesis.table)?;
            file.check_unchanged()?;
            let path = match output {
                Some(output) => {
                    super::write(output, &encoded.bytes, None)?;
                    output.clone()
                }
                None => store
                    .keep_synthesized(file, &encoded.bytes)
                    .with_context(|| super::compile::no_cache(&args.file))?,
            };
            (path, encoded.bytes.len())
        }
    };
    let report = SynthReport {
        file: &args.file,
        written,
        bytes,
        synthesis: &synthesis,
    };
    match args.format {
        Format::Text => report.text(args.all)?,
        Format::Json => output::document("synth", &report.json())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The result for a file's code.
struct SynthReport<'r> {
    file: &'r Path,
    /// The output file.
    written: PathBuf,
    bytes: usize,
    synthesis: &'r Synthesis,
}

impl SynthReport<'_> {
    fn functions(&self) -> &[FunctionCoverage] {
        &self.synthesis.functions
    }

    fn instructions(&self) -> usize {
        self.functions().iter().map(|f| f.instructions).sum()
    }

    fn instructions_with_row(&self) -> usize {
        self.functions()
            .iter()
            .map(|f| f.instructions_with_row)
            .sum()
    }

    fn lacking(&self) -> impl Iterator<Item = (&FunctionCoverage, &MissingReason)> {
        let lacking = self.functions().iter();
        lacking.filter_map(|function| Some((function, &function.first_without_row.as_ref()?.1)))
    }

    fn text(&self, all: bool) -> anyhow::Result<()> {
        let mut out = output::text();
        let share = 100.0 * as_f64(self.instructions_with_row() as u64)
            / as_f64(self.instructions().max(1) as u64);
        writeln!(
            out,
            "{}: {} functions without a table; {} of {} instructions get a row ({share:.2} %): {} rows, {} bytes",
            output::path(self.file),
            self.functions().len(),
            self.instructions_with_row(),
            self.instructions(),
            self.synthesis.table.row_count(),
            self.bytes,
        )?;
        writeln!(out, "  {}", output::path(&self.written))?;
        let mut by_reason: BTreeMap<String, Vec<&FunctionCoverage>> = BTreeMap::new();
        for (function, missing) in self.lacking() {
            by_reason
                .entry(reason(*missing))
                .or_default()
                .push(function);
        }
        for (reason, functions) in by_reason {
            writeln!(
                out,
                "\n{} without a row for some or all of it: {reason}",
                functions.len()
            )?;
            let shown = if all { functions.len() } else { MAX_EXAMPLES };
            for function in functions.iter().take(shown) {
                let missing = function.instructions - function.instructions_with_row;
                let at = function
                    .first_without_row
                    .map_or(function.start, |(at, _)| at);
                writeln!(
                    out,
                    "  {}..{}  {}  {missing} of {} instructions, the first at {at}",
                    function.start,
                    function.end,
                    EscapedText(&name(function)),
                    function.instructions,
                )?;
            }
            let hidden = functions.len() - shown.min(functions.len());
            if hidden > 0 {
                writeln!(out, "  and {hidden} more (--all)")?;
            }
        }
        Ok(out.flush()?)
    }

    fn json(&self) -> Value {
        let functions = self.functions().iter().map(|function| {
            let first_without_row = function.first_without_row.map(|(at, missing)| {
                json!({ "address": output::address(at.0), "reason": missing.to_string() })
            });
            json!({
                "name": function.name,
                "start": output::address(function.start.0),
                "end": output::address(function.end.0),
                "instructions": function.instructions,
                "instructions_with_row": function.instructions_with_row,
                "first_without_row": first_without_row,
            })
        });
        json!({
            "file": self.file.to_string_lossy(),
            "output": self.written.to_string_lossy(),
            "bytes": self.bytes,
            "rows": self.synthesis.table.row_count(),
            "instructions": self.instructions(),
            "instructions_with_row": self.instructions_with_row(),
            "functions": functions.collect::<Vec<_>>(),
        })
    }
}

/// The most functions shown for one reason of missing rows.
const MAX_EXAMPLES: usize = 5;

/// The reason without addresses, which differ.
fn reason(missing: MissingReason) -> String {
    match missing {
        MissingReason::ContradictedByExit(_) => {
            "no symbol says that it is a function, and its exit is not like a function's".to_owned()
        }
        other => other.to_string(),
    }
}

fn name(function: &FunctionCoverage) -> String {
    if function.name.is_empty() {
        "??".to_owned()
    } else {
        demangle(&function.name).into_owned()
    }
}
