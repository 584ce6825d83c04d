//! `unspool show`.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use anyhow::bail;
use serde_json::{Value, json};
use unspool_ir::text::{AbiText, FdeText, RowText};
use unspool_ir::{Fde, Table, Vaddr};
use unspool_module::{ElfFile, demangle};
use unspool_unwind::tables::Reading;

use crate::args::{Format, ShowArgs};
use crate::output::{self, Failure};

pub(crate) fn run(args: &ShowArgs) -> anyhow::Result<ExitCode> {
    let file = super::open(&args.file)?;
    let reading = super::read(&file, args.from)?;
    let wanted = select(&file, &reading.table, args)?;
    match args.format {
        Format::Text => print_text(&file, &reading, &wanted)?,
        Format::Json => print_json(&reading, &wanted)?,
    }
    let status = if reading.problems.is_empty() {
        0
    } else {
        Failure::FINDINGS
    };
    Ok(ExitCode::from(status))
}

/// The entries asked for.
fn select<'t>(file: &ElfFile, table: &'t Table, args: &ShowArgs) -> anyhow::Result<Vec<&'t Fde>> {
    let mut wanted: Vec<&Fde> = table.fdes().iter().collect();
    if let Some(name) = &args.function {
        let symbols = file.symbols();
        let is_wanted = |symbol: &str| symbol == name || demangle(symbol) == *name;
        let starts: Vec<_> = symbols
            .iter()
            .filter(|symbol| is_wanted(&symbol.name))
            .map(|symbol| (symbol.address, symbol.address.offset(symbol.size.max(1))))
            .collect();
        if starts.is_empty() {
            bail!(
                "{}: no function symbol named `{name}`",
                file.path().display()
            );
        }
        wanted.retain(|fde| {
            starts
                .iter()
                .any(|(from, to)| fde.start < *to && *from < fde.end)
        });
    }
    if let Some(pc) = args.pc.map(Vaddr) {
        wanted.retain(|fde| fde.start <= pc && pc < fde.end);
    }
    if wanted.is_empty() && (args.function.is_some() || args.pc.is_some()) {
        bail!(
            "{}: no unwind table entry covers that",
            file.path().display()
        );
    }
    Ok(wanted)
}

fn print_text(file: &ElfFile, reading: &Reading, wanted: &[&Fde]) -> anyhow::Result<()> {
    let table = &reading.table;
    let mut out = output::results();
    writeln!(out, "{}", AbiText(table.abi()))?;
    for fde in wanted {
        if let Some(symbol) = file.symbols().lookup(fde.start) {
            writeln!(out, "# {}", demangle(&symbol.name))?;
        }
        writeln!(out, "{}", FdeText(fde))?;
        for start in table.rows(fde) {
            if let Some(row) = table.row(start.row) {
                writeln!(
                    out,
                    "  {:#x}  {}",
                    start.start.0,
                    RowText(&row, table.abi())
                )?;
            }
        }
    }
    out.flush()?;
    Ok(())
}

fn print_json(reading: &Reading, wanted: &[&Fde]) -> anyhow::Result<()> {
    let table = &reading.table;
    let mut abi = String::new();
    write!(abi, "{}", AbiText(table.abi()))?;
    let entries: Vec<Value> = wanted.iter().map(|fde| entry(table, fde)).collect();
    let problems: Vec<_> = reading.problems.iter().map(ToString::to_string).collect();
    let body = json!({ "abi": abi, "entries": entries, "problems": problems });
    Ok(output::document("show", body)?)
}

fn entry(table: &Table, fde: &Fde) -> Value {
    let rows: Vec<Value> = table
        .rows(fde)
        .iter()
        .filter_map(|start| {
            let row = table.row(start.row)?;
            let text = RowText(&row, table.abi()).to_string();
            Some(json!({ "address": output::address(start.start.0), "row": text }))
        })
        .collect();
    json!({
        "start": output::address(fde.start.0),
        "end": output::address(fde.end.0),
        "lsda": fde.lsda.map(|lsda| output::address(lsda.0)),
        "section_offset": fde.origin,
        "rows": rows,
    })
}
