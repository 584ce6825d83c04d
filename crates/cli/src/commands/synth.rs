//! `unspool synth`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use unspool_cfi::EhFrame;
use unspool_ir::diff::{Compare, differences};
use unspool_ir::table::RowStart;
use unspool_ir::{Table, Vaddr};
use unspool_module::{ElfFile, demangle, embed_eh_frame};
use unspool_recover::{Missing, Recovered, Synthesis};
use unspool_unwind::tables::{self, From, Store};

use super::compile::as_f64;
use crate::args::{Emit, Format, SynthArgs};
use crate::output::{self, Plain};

pub(crate) fn run(args: &SynthArgs) -> anyhow::Result<ExitCode> {
    let file = super::open(&args.file)?;
    let own = tables::read_if_any(&file)?;
    let synthesis = tables::synthesize(&file, &own);
    let synthesis = synthesis.with_context(|| args.file.display().to_string())?;
    let (written, bytes) = match (args.emit, &args.output) {
        (Emit::EhFrame, Some(output)) => {
            let (elf, bytes) = with_eh_frame(&file, &joined(&[&own, &synthesis.table])?)
                .with_context(|| args.file.display().to_string())?;
            let permissions = fs::metadata(&args.file)?.permissions();
            super::write(output, &elf, Some(permissions))?;
            (output.clone(), bytes)
        }
        (_, output) => {
            let encoded = tables::compile_synthesized(&file, &synthesis.table)?;
            let path = match output {
                Some(output) => {
                    super::write(output, &encoded.bytes, None)?;
                    output.clone()
                }
                None => Store::from_environment()
                    .keep_synthesized(&file.content_key(), &encoded.bytes)
                    .with_context(|| super::compile::no_cache(&args.file))?,
            };
            (path, encoded.bytes.len())
        }
    };
    let report = Report {
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

/// The file with entries, its own and those that were made of its code, as its `.eh_frame`, read back and compared; and
/// the bytes of both sections.
fn with_eh_frame(file: &ElfFile, all: &Table) -> anyhow::Result<(Vec<u8>, usize)> {
    let written = EhFrame::of(all)?;
    let failed = RefCell::new(None);
    let content = |[hdr, eh_frame]: [Vaddr; 2]| {
        let sections = written
            .hdr_at(hdr, eh_frame)
            .and_then(|hdr| Ok([hdr, written.at(eh_frame)?]));
        sections.unwrap_or_else(|error| {
            failed.replace(Some(error));
            [Vec::new(), Vec::new()]
        })
    };
    let lengths = [written.hdr_len() as u64, written.len() as u64];
    let elf = embed_eh_frame(file, lengths, &content)?;
    if let Some(error) = failed.take() {
        return Err(error.into());
    }
    let back = ElfFile::from_bytes(file.path(), elf.as_slice())?;
    let back = tables::read(&back, From::EhFrame)?.table;
    if let Some(difference) = differences(all, &back, Compare::RowsAndEntries).first() {
        bail!(
            "what was written differs from what was to be written at {}; this is a bug in unspool, please report it",
            difference.start
        );
    }
    Ok((elf, written.hdr_len() + written.len()))
}

/// The entries of all tables in one.
fn joined(tables: &[&Table]) -> anyhow::Result<Table> {
    let Some(first) = tables.first() else {
        bail!("no tables");
    };
    let mut all = Table::new(first.abi());
    for table in tables {
        for fde in table.fdes() {
            let mut rows = Vec::new();
            for start in table.rows(fde) {
                if let Some(row) = table.row(start.row) {
                    let row = all.intern(&row)?;
                    rows.push(RowStart { row, ..start });
                }
            }
            all.push(fde.header(), &rows)?;
        }
    }
    Ok(all)
}

/// What came of a file's code.
struct Report<'r> {
    file: &'r Path,
    /// The file that was written.
    written: PathBuf,
    bytes: usize,
    synthesis: &'r Synthesis,
}

impl Report<'_> {
    fn functions(&self) -> &[Recovered] {
        &self.synthesis.functions
    }

    fn instructions(&self) -> usize {
        self.functions().iter().map(|f| f.instructions).sum()
    }

    fn described(&self) -> usize {
        self.functions().iter().map(|f| f.described).sum()
    }

    fn lacking(&self) -> impl Iterator<Item = (&Recovered, &Missing)> {
        let lacking = self.functions().iter();
        lacking.filter_map(|function| Some((function, &function.missing.as_ref()?.1)))
    }

    fn text(&self, all: bool) -> anyhow::Result<()> {
        let mut out = output::results();
        let share =
            100.0 * as_f64(self.described() as u64) / as_f64(self.instructions().max(1) as u64);
        writeln!(
            out,
            "{}: {} functions without a table; {} of {} instructions get a row ({share:.2} %): {} rows, {} bytes",
            self.file.display(),
            self.functions().len(),
            self.described(),
            self.instructions(),
            self.synthesis.table.row_count(),
            self.bytes,
        )?;
        writeln!(out, "  {}", self.written.display())?;
        let mut by_reason: BTreeMap<String, Vec<&Recovered>> = BTreeMap::new();
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
            let shown = if all { functions.len() } else { SHOWN };
            for function in functions.iter().take(shown) {
                let missing = function.instructions - function.described;
                let at = function.missing.map_or(function.start, |(at, _)| at);
                writeln!(
                    out,
                    "  {}..{}  {}  {missing} of {} instructions, the first at {at}",
                    function.start,
                    function.end,
                    Plain(&name(function)),
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
            let missing = function.missing.map(|(at, missing)| {
                json!({ "address": output::address(at.0), "why": missing.to_string() })
            });
            json!({
                "name": function.name,
                "start": output::address(function.start.0),
                "end": output::address(function.end.0),
                "instructions": function.instructions,
                "described": function.described,
                "missing": missing,
            })
        });
        json!({
            "file": self.file.to_string_lossy(),
            "written": self.written.to_string_lossy(),
            "bytes": self.bytes,
            "rows": self.synthesis.table.row_count(),
            "instructions": self.instructions(),
            "described": self.described(),
            "functions": functions.collect::<Vec<_>>(),
        })
    }
}

/// Of the functions that lack rows for one reason, so many are shown.
const SHOWN: usize = 5;

/// The reason without addresses, which differ.
fn reason(missing: Missing) -> String {
    match missing {
        Missing::NotBorneOut(_) => {
            "no symbol says that it is a function, and it does not leave as one does".to_owned()
        }
        other => other.to_string(),
    }
}

fn name(function: &Recovered) -> String {
    match function.name.is_empty() {
        true => "??".to_owned(),
        false => demangle(&function.name).into_owned(),
    }
}
