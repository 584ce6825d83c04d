//! `unspool compile`.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use unspool_elf::embed;
use unspool_table_store::{self as tables, Store};

use crate::args::Format;
use crate::args::tables::{CompileArgs, CompiledForm};
use crate::output::{self, ExitCodes};

mod native;

pub(crate) fn run(args: &CompileArgs) -> anyhow::Result<ExitCode> {
    if args.form != CompiledForm::Table {
        return native::run(args);
    }
    if (args.output.is_some() || args.into.is_some()) && args.files.len() > 1 {
        bail!(
            "--output and --into take one file; leave them out to compile several into the cache"
        );
    }
    let store = Store::from_environment();
    let mut status = 0;
    let mut reports = Vec::new();
    let mut failed = Vec::new();
    for path in &args.files {
        match one(path, args, &store) {
            Ok(report) => {
                if report.bad_entries > 0 {
                    status = status.max(ExitCodes::FINDINGS);
                }
                reports.push(report);
            }
            Err(error) => {
                output::error(&format_args!("{error:#}"));
                failed.push(super::error_object(path, &error));
                status = ExitCodes::COULD_NOT_RUN;
            }
        }
    }
    match args.format {
        Format::Text => print_text(&reports)?,
        Format::Json => {
            let files: Vec<Value> = reports.iter().map(as_json).chain(failed).collect();
            output::document("compile", &json!({ "files": files }))?;
        }
    }
    Ok(ExitCode::from(status))
}

pub(crate) fn no_cache(path: &Path) -> String {
    format!(
        "{}: the table cannot be kept in the cache (XDG_CACHE_HOME can name another folder, \
         --output a file)",
        path.display()
    )
}

struct CompileReport {
    file: PathBuf,
    output: PathBuf,
    bytes: usize,
    source_bytes: u64,
    rows: usize,
    verified_rows: Option<u64>,
    bad_entries: usize,
    seconds: f64,
}

fn one(path: &Path, args: &CompileArgs, store: &Store) -> anyhow::Result<CompileReport> {
    let started = Instant::now();
    let opened = super::open(path)?;
    let file = &*store.stable(&opened);
    let (made, comparison) = if args.no_verify {
        (tables::compile(file, args.from.to_library())?, None)
    } else {
        let (made, comparison) = tables::compile_verified(file, args.from.to_library())?;
        (made, Some(comparison))
    };
    super::report_problems(file, &made.source);
    let bytes = &made.encoded.bytes;
    let output = match (&args.output, &args.into) {
        (Some(output), _) => {
            super::write(output, bytes, None)?;
            output.clone()
        }
        (None, Some(into)) => {
            let elf = embed(file, tables::EMBEDDED_SECTION, bytes, EMBEDDED_ALIGN)?;
            file.check_unchanged()?;
            let permissions = fs::metadata(path)?.permissions();
            super::write(into, &elf, Some(permissions))?;
            into.clone()
        }
        (None, None) => store.keep(file, bytes).with_context(|| no_cache(path))?,
    };
    let source: u64 = made.source.sections.iter().map(|origin| origin.size).sum();
    Ok(CompileReport {
        file: path.to_path_buf(),
        output,
        bytes: made.encoded.bytes.len(),
        source_bytes: source + made.source.hdr_size,
        rows: made.source.table.row_count(),
        verified_rows: comparison.map(|comparison| comparison.rows),
        bad_entries: made.source.problems.len(),
        seconds: started.elapsed().as_secs_f64(),
    })
}

/// The alignment of an embedded table: a cache line.
const EMBEDDED_ALIGN: u64 = 64;

fn as_json(report: &CompileReport) -> Value {
    json!({
        "file": report.file.to_string_lossy(),
        "output": report.output.to_string_lossy(),
        "bytes": report.bytes,
        "source_bytes": report.source_bytes,
        "rows": report.rows,
        "verified_rows": report.verified_rows,
        "bad_entries": report.bad_entries,
        "seconds": report.seconds,
    })
}

fn print_text(reports: &[CompileReport]) -> anyhow::Result<()> {
    let mut out = output::text();
    for report in reports {
        let share = 100.0 * as_f64(report.bytes as u64) / as_f64(report.source_bytes.max(1));
        let proof = match report.verified_rows {
            Some(rows) => format!("{rows} rows verified, 0 differences"),
            None => format!("{} rows, not verified", report.rows),
        };
        writeln!(
            out,
            "{}: {} bytes ({share:.0} % of the source), {proof}, {:.0} ms\n  {}",
            output::path(&report.file),
            report.bytes,
            report.seconds * 1e3,
            output::path(&report.output),
        )?;
    }
    out.flush()?;
    Ok(())
}

/// A count as a divisor; exact below 2^53.
#[expect(
    clippy::cast_precision_loss,
    reason = "shares are shown with two digits"
)]
pub(crate) fn as_f64(count: u64) -> f64 {
    count as f64
}
