//! `unspool stats`.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use serde_json::{Value, json};
use unspool_compact::Part;
use unspool_unwind::tables::{self, CompileError, From};

use self::figures::{Counts, Distribution, Figures};
use super::compile::as_f64;
use crate::args::{Format, StatsArgs};
use crate::output::{self, Failure};

mod figures;

pub(crate) fn run(args: &StatsArgs) -> anyhow::Result<ExitCode> {
    let mut all = Vec::new();
    let mut failed = Vec::new();
    let mut status = 0;
    for path in &args.files {
        match one(path) {
            Ok(figures) => all.push(figures),
            Err(error) => {
                output::error(&format_args!("{error:#}"));
                failed.push(super::failed(path, &error));
                status = Failure::COULD_NOT_RUN;
            }
        }
    }
    if all.iter().any(|figures| figures.bad_entries > 0) {
        status = status.max(Failure::FINDINGS);
    }
    match args.format {
        Format::Text => print_text(&all)?,
        Format::Json => print_json(&all, failed)?,
    }
    Ok(ExitCode::from(status))
}

fn one(path: &Path) -> anyhow::Result<Figures> {
    let file = super::open(path)?;
    let (reading, encoded) = match tables::compile(&file, From::Auto) {
        Ok(made) => (made.reading, Some(made.encoded)),
        Err(error @ CompileError::Encode { .. }) => {
            output::notice(&error);
            (tables::read(&file, From::Auto)?, None)
        }
        Err(error) => return Err(error.into()),
    };
    super::report_problems(&file, &reading);
    Figures::of(&file, &reading, encoded.as_ref())
}

fn total(all: &[Figures]) -> Option<Figures> {
    let mut all = all.iter();
    let mut total = all.next()?.clone();
    total.file = "total".into();
    all.for_each(|figures| total.add(figures));
    Some(total)
}

fn print_text(all: &[Figures]) -> std::io::Result<()> {
    let mut out = output::results();
    let sum = if all.len() > 1 { total(all) } else { None };
    for f in all.iter().chain(&sum) {
        writeln!(out, "{}", f.file)?;
        let rows_each = as_f64(f.rows) / as_f64(f.fdes.max(1));
        writeln!(
            out,
            "  entries        {:>10}   {} CIEs, {} empty",
            f.fdes, f.cies, f.empty_fdes
        )?;
        writeln!(
            out,
            "  code bytes     {:>10}   an entry: {}",
            f.entry_sizes.sum, f.entry_sizes
        )?;
        writeln!(
            out,
            "  rows           {:>10}   an entry: {rows_each:.1} on average, {}",
            f.rows, f.rows_per_entry
        )?;
        writeln!(out, "  distinct rows  {:>10}", f.distinct_rows)?;
        writeln!(out, "  bad entries    {:>10}", f.bad_entries)?;
        writeln!(
            out,
            "  not held       {:>10}   rows that the compiled form cannot represent",
            f.rows_not_held
        )?;
        let source = f.source_bytes();
        writeln!(
            out,
            "  bytes          {:>10}   of the source   of code+rodata",
            ""
        )?;
        let line = |name: &str, bytes: u64| {
            let share = |of: u64| 100.0 * as_f64(bytes) / as_f64(of.max(1));
            format!(
                "    {name:<13}{bytes:>10}   {:>11.1} %   {:>14.1} %",
                share(source),
                share(f.program_bytes)
            )
        };
        writeln!(out, "{}", line("source", source))?;
        writeln!(out, "{}", line("compiled", f.table_bytes()))?;
        for (part, bytes) in f.parts {
            writeln!(out, "{}", line(part_name(part), bytes))?;
        }
        writeln!(
            out,
            "  instructions   {:>10}   {}",
            f.instructions.sum(),
            f.instructions
        )?;
        writeln!(out, "  rules          {:>10}   {}", f.rules.sum(), f.rules)?;
        writeln!(
            out,
            "  CFA rules      {:>10}   {}",
            f.cfa_rules.sum(),
            f.cfa_rules
        )?;
    }
    out.flush()
}

fn part_name(part: Part) -> &'static str {
    match part {
        Part::Header => "  header",
        Part::Rows => "  rows",
        Part::Entries => "  entries",
        Part::Calls => "  call sites",
    }
}

fn print_json(all: &[Figures], failed: Vec<Value>) -> std::io::Result<()> {
    let files: Vec<Value> = all.iter().map(as_json).chain(failed).collect();
    let total = total(all).map(|total| as_json(&total));
    output::document("stats", &json!({ "files": files, "total": total }))
}

fn as_json(f: &Figures) -> Value {
    let counts = |counts: &Counts| -> Value {
        counts
            .iter()
            .map(|(name, count)| (name.to_owned(), json!(count)))
            .collect()
    };
    let distribution = |d: &Distribution| {
        json!({ "sum": d.sum, "p50": d.quantile(50), "p90": d.quantile(90),
                "p99": d.quantile(99), "max": d.quantile(100) })
    };
    let [(_, header), (_, rows), (_, entries), (_, calls)] = f.parts;
    json!({
        "file": f.file,
        "cies": f.cies,
        "fdes": f.fdes,
        "empty_fdes": f.empty_fdes,
        "bad_entries": f.bad_entries,
        "rows": f.rows,
        "distinct_rows": f.distinct_rows,
        "rows_not_represented": f.rows_not_held,
        "entry_code_bytes": distribution(&f.entry_sizes),
        "rows_per_entry": distribution(&f.rows_per_entry),
        "program_bytes": f.program_bytes,
        "source_bytes": f.source_bytes(),
        "table_bytes": { "header": header, "rows": rows, "entries": entries, "call_sites": calls },
        "instructions": counts(&f.instructions),
        "rules": counts(&f.rules),
        "cfa_rules": counts(&f.cfa_rules),
    })
}
