//! `unspool stats`.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use serde_json::{Value, json};
use unspool_compiled_table::TablePart;
use unspool_table_store::{
    self as tables, CompileError, Distribution, FileStats, KindCounts, TableSource,
};

use super::compile::as_f64;
use super::elf_files;
use crate::args::tables::{StatsArgs, StatsFormat};
use crate::output::{self, EscapedText, ExitCodes};

pub(crate) fn run(args: &StatsArgs) -> anyhow::Result<ExitCode> {
    let mut all = Vec::new();
    let mut failed = Vec::new();
    let mut status = 0;
    for (path, figures) in args.files.iter().flat_map(|path| of(path)) {
        match figures {
            Ok(figures) => all.push(figures),
            Err(error) => {
                output::error(&format_args!("{error:#}"));
                failed.push(super::error_object(&path, &error));
                status = ExitCodes::COULD_NOT_RUN;
            }
        }
    }
    if all.is_empty() && failed.is_empty() {
        bail!("no ELF file with an unwind table in the folders given");
    }
    if all.iter().any(|figures| figures.bad_entries > 0) {
        status = status.max(ExitCodes::FINDINGS);
    }
    let total = total(&all);
    if args.total {
        all.clear();
    }
    match args.format {
        StatsFormat::Text => print_text(&all, total.as_ref())?,
        StatsFormat::Table => print_table(&all, total.as_ref())?,
        StatsFormat::Json => print_json(&all, total.as_ref(), failed)?,
    }
    Ok(ExitCode::from(status))
}

/// The statistics of a file, or of the files in a folder that have unwind tables.
fn of(path: &Path) -> Vec<(PathBuf, anyhow::Result<FileStats>)> {
    if !path.is_dir() {
        return vec![(path.to_path_buf(), one(path))];
    }
    let (files, unreadable) = elf_files::find(&[path.to_path_buf()]);
    let unreadable = unreadable.into_iter();
    let unreadable = unreadable.map(|(path, error)| (path, Err(error)));
    let mut all = unspool_parallel::map(files, unspool_parallel::processors(), |file| {
        let figures = one(&file);
        (file, figures)
    });
    all.retain(|(_, figures)| !figures.as_ref().is_err_and(super::is_missing));
    all.extend(unreadable);
    all
}

fn one(path: &Path) -> anyhow::Result<FileStats> {
    let file = super::open(path)?;
    let (reading, encoded) = match tables::compile(&file, TableSource::Auto) {
        Ok(made) => (made.source, Some(made.encoded)),
        Err(error @ CompileError::Encode { .. }) => {
            output::notice(&error);
            (tables::read(&file, TableSource::Auto)?, None)
        }
        Err(error) => return Err(error.into()),
    };
    super::report_problems(&file, &reading);
    Ok(FileStats::from_file(&file, &reading, encoded.as_ref())?)
}

fn total(all: &[FileStats]) -> Option<FileStats> {
    let mut all = all.iter();
    let mut total = all.next()?.clone();
    total.file = "total".into();
    all.for_each(|figures| total.add(figures));
    Some(total)
}

/// The rows of the report: the files, and the total unless there is only one file.
fn shown<'f>(
    all: &'f [FileStats],
    total: Option<&'f FileStats>,
) -> impl Iterator<Item = &'f FileStats> {
    all.iter().chain(total.filter(|_| all.len() != 1))
}

fn print_text(all: &[FileStats], total: Option<&FileStats>) -> std::io::Result<()> {
    let mut out = output::text();
    for f in shown(all, total) {
        match f.file_count {
            1 => writeln!(out, "{}", EscapedText(&f.file))?,
            files => writeln!(out, "{}: {files} files", EscapedText(&f.file))?,
        }
        let rows_each = as_f64(f.rows) / as_f64(f.fdes.max(1));
        writeln!(
            out,
            "  entries        {:>10}   {} CIEs, {} empty",
            f.fdes, f.cies, f.empty_fdes
        )?;
        if f.fdes_by_section.len() > 1 {
            for (section, fdes) in &f.fdes_by_section {
                writeln!(out, "    {section:<13}{fdes:>10}")?;
            }
        }
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
            f.unrepresentable_rows
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
        writeln!(out, "{}", line("native code", f.native_bytes))?;
        for (name, counts) in [
            ("instructions", &f.opcodes),
            ("rules", &f.rules),
            ("registers", &f.registers),
            ("CFA rules", &f.cfa_rules),
        ] {
            writeln!(out, "  {name:<15}{:>10}   {counts}", counts.sum())?;
        }
    }
    out.flush()
}

/// The papers' table: the size of the other forms for each byte of the section, without its search
/// table, and of the program.
fn print_table(all: &[FileStats], total: Option<&FileStats>) -> std::io::Result<()> {
    let mut out = output::text();
    writeln!(
        out,
        "| | entries | bad | rows | different | `.eh_frame` | compiled | growth | of code+rodata | native code | growth | of code+rodata |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|"
    )?;
    for f in shown(all, total) {
        let form = |bytes: u64, source: u64| {
            let growth = as_f64(bytes) / as_f64(source.max(1));
            let of_program = 100.0 * as_f64(bytes) / as_f64(f.program_bytes.max(1));
            format!("{bytes} | {growth:.2} | {of_program:.1} %")
        };
        writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {} | {} |",
            f.file,
            f.fdes,
            f.bad_entries,
            f.rows,
            f.distinct_rows,
            f.section_bytes,
            form(f.table_bytes(), f.section_bytes),
            form(f.native_bytes, f.native_section_bytes),
        )?;
    }
    out.flush()
}

fn part_name(part: TablePart) -> &'static str {
    match part {
        TablePart::Header => "  header",
        TablePart::Rows => "  rows",
        TablePart::Entries => "  entries",
        TablePart::Calls => "  call sites",
    }
}

fn print_json(
    all: &[FileStats],
    total: Option<&FileStats>,
    failed: Vec<Value>,
) -> std::io::Result<()> {
    let files: Vec<Value> = all.iter().map(as_json).chain(failed).collect();
    let total = total.map(as_json);
    output::document("stats", &json!({ "files": files, "total": total }))
}

fn as_json(f: &FileStats) -> Value {
    let counts = |counts: &KindCounts| -> Value {
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
        "file_count": f.file_count,
        "cies": f.cies,
        "fdes": f.fdes,
        "fdes_by_section": f.fdes_by_section,
        "empty_fdes": f.empty_fdes,
        "bad_entries": f.bad_entries,
        "rows": f.rows,
        "distinct_rows": f.distinct_rows,
        "unrepresentable_rows": f.unrepresentable_rows,
        "entry_code_bytes": distribution(&f.entry_sizes),
        "rows_per_entry": distribution(&f.rows_per_entry),
        "program_bytes": f.program_bytes,
        "source_bytes": f.source_bytes(),
        "table_bytes": { "header": header, "rows": rows, "entries": entries, "call_sites": calls },
        "section_bytes": f.section_bytes,
        "native_bytes": f.native_bytes,
        "native_section_bytes": f.native_section_bytes,
        "instructions": counts(&f.instructions),
        "opcodes": counts(&f.opcodes),
        "rules": counts(&f.rules),
        "registers": counts(&f.registers),
        "cfa_rules": counts(&f.cfa_rules),
    })
}
