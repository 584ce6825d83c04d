//! `unspool stats`.

use std::io::Write as _;
use std::process::ExitCode;

use serde_json::{Value, json};
use unspool_compact::Part;

use unspool_unwind::tables;

use super::compile::as_f64;
use crate::args::{Format, StatsArgs};
use crate::output::{self, Failure};

/// One file's figures.
struct Figures {
    file: String,
    fdes: usize,
    rows: usize,
    distinct_rows: usize,
    source_bytes: u64,
    parts: [(Part, usize); 4],
    bad_entries: usize,
}

pub(crate) fn run(args: &StatsArgs) -> anyhow::Result<ExitCode> {
    let mut all = Vec::new();
    let mut status = 0;
    for path in &args.files {
        match super::open(path).and_then(|file| Ok(tables::compile(&file, tables::From::Auto)?)) {
            Ok(made) => {
                let source: u64 = made.reading.origins.iter().map(|origin| origin.size).sum();
                let part = |part| (part, made.encoded.part(part));
                all.push(Figures {
                    file: path.display().to_string(),
                    fdes: made.reading.table.fdes().len(),
                    rows: made.reading.table.row_count(),
                    distinct_rows: made.reading.table.distinct_rows(),
                    source_bytes: source + made.reading.hdr_size,
                    parts: [Part::Header, Part::Rows, Part::Entries, Part::Calls].map(part),
                    bad_entries: made.reading.problems.len(),
                });
            }
            Err(error) if args.files.len() == 1 => return Err(error),
            Err(error) => {
                output::error(&format_args!("{error:#}"));
                status = Failure::COULD_NOT_RUN;
            }
        }
    }
    if all.iter().any(|figures| figures.bad_entries > 0) {
        status = status.max(Failure::FINDINGS);
    }
    print(&all, args.format)?;
    Ok(ExitCode::from(status))
}

fn print(all: &[Figures], format: Format) -> anyhow::Result<()> {
    if format == Format::Json {
        let files: Vec<Value> = all.iter().map(as_json).collect();
        return Ok(output::document("stats", json!({ "files": files }))?);
    }
    let mut out = output::results();
    writeln!(
        out,
        "{:>8} {:>9} {:>8} {:>11} {:>11} {:>6} {:>6} {:>6} {:>6}  file",
        "FDEs", "rows", "distinct", "source B", "table B", "whole", "rows", "entry", "calls",
    )?;
    for f in all {
        let total: usize = f.parts.iter().map(|(_, bytes)| bytes).sum();
        let share = |bytes: usize| as_f64(bytes as u64) / as_f64(f.source_bytes.max(1));
        let [_, (_, rows), (_, entries), (_, calls)] = f.parts;
        writeln!(
            out,
            "{:>8} {:>9} {:>8} {:>11} {:>11} {:>6.3} {:>6.3} {:>6.3} {:>6.3}  {}",
            f.fdes,
            f.rows,
            f.distinct_rows,
            f.source_bytes,
            total,
            share(total),
            share(rows),
            share(entries),
            share(calls),
            f.file,
        )?;
    }
    out.flush()?;
    Ok(())
}

fn as_json(f: &Figures) -> Value {
    let [(_, header), (_, rows), (_, entries), (_, calls)] = f.parts;
    json!({
        "file": f.file,
        "fdes": f.fdes,
        "rows": f.rows,
        "distinct_rows": f.distinct_rows,
        "source_bytes": f.source_bytes,
        "table_bytes": { "header": header, "rows": rows, "entries": entries, "calls": calls },
        "bad_entries": f.bad_entries,
    })
}
