//! `unspool show`.

use std::io::Write;
use std::ops::Range;
use std::process::ExitCode;

use anyhow::bail;
use serde_json::{Value, json};
use unspool_ir::text::{AbiText, FdeText, RowText};
use unspool_ir::{Fde, Pointer, Table, Vaddr};
use unspool_module::{ElfFile, demangle};
use unspool_unwind::tables::Reading;

use crate::args::{Format, ShowArgs};
use crate::output::{self, Failure};

mod instructions;

pub(crate) fn run(args: &ShowArgs) -> anyhow::Result<ExitCode> {
    let file = super::open(&args.file)?;
    let reading = super::read(&file, args.from)?;
    let selection = Selection::new(&file, args)?;
    let mut wanted: Vec<&Fde> = reading.table.fdes().iter().collect();
    wanted.retain(|fde| selection.has(fde.start, fde.end));
    if wanted.is_empty() && !selection.is_all() {
        bail!(
            "{}: no unwind table entry covers that",
            file.path().display()
        );
    }
    match args.format {
        Format::Text if args.instructions => instructions::print(&file, args.from, &selection)?,
        Format::Text => print_text(&file, &reading.table, &wanted)?,
        Format::Json => print_json(&file, &reading, &wanted)?,
    }
    let status = if reading.problems.is_empty() {
        0
    } else {
        Failure::FINDINGS
    };
    Ok(ExitCode::from(status))
}

/// Which entries are asked for.
struct Selection {
    /// The addresses of the function asked for; `None` for all.
    function: Option<Vec<Range<Vaddr>>>,
    pc: Option<Vaddr>,
}

impl Selection {
    fn new(file: &ElfFile, args: &ShowArgs) -> anyhow::Result<Self> {
        let function = match &args.function {
            Some(name) => Some(function_ranges(file, name)?),
            None => None,
        };
        Ok(Selection {
            function,
            pc: args.pc.map(Vaddr),
        })
    }

    fn is_all(&self) -> bool {
        self.function.is_none() && self.pc.is_none()
    }

    fn has(&self, start: Vaddr, end: Vaddr) -> bool {
        let overlaps = |range: &Range<Vaddr>| start < range.end && range.start < end;
        self.function
            .as_ref()
            .is_none_or(|ranges| ranges.iter().any(overlaps))
            && self.pc.is_none_or(|pc| start <= pc && pc < end)
    }
}

/// The addresses of every symbol of that name, mangled or not.
fn function_ranges(file: &ElfFile, name: &str) -> anyhow::Result<Vec<Range<Vaddr>>> {
    let is_wanted = |symbol: &str| symbol == name || demangle(symbol) == *name;
    let ranges: Vec<_> = file
        .symbols()
        .iter()
        .filter(|symbol| is_wanted(&symbol.name))
        .map(|symbol| symbol.address..symbol.address.offset(symbol.size.max(1)))
        .collect();
    if ranges.is_empty() {
        bail!(
            "{}: no function symbol is named `{name}`",
            file.path().display()
        );
    }
    Ok(ranges)
}

/// Names the function that an entry is of.
fn print_name(out: &mut impl Write, file: &ElfFile, start: Vaddr) -> std::io::Result<()> {
    match file.symbols().lookup(start) {
        Some(symbol) if symbol.address == start => writeln!(out, "# {}", demangle(&symbol.name)),
        Some(symbol) => {
            let offset = start.0.wrapping_sub(symbol.address.0);
            writeln!(out, "# {}+{offset:#x}", demangle(&symbol.name))
        }
        None => Ok(()),
    }
}

fn print_text(file: &ElfFile, table: &Table, wanted: &[&Fde]) -> std::io::Result<()> {
    let mut out = output::results();
    writeln!(out, "{}", AbiText(table.abi()))?;
    for fde in wanted {
        print_name(&mut out, file, fde.start)?;
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
    out.flush()
}

fn print_json(file: &ElfFile, reading: &Reading, wanted: &[&Fde]) -> std::io::Result<()> {
    let table = &reading.table;
    let entries: Vec<Value> = wanted.iter().map(|fde| entry(file, table, fde)).collect();
    let problems: Vec<_> = reading.problems.iter().map(ToString::to_string).collect();
    let overlaps: Vec<Value> = table
        .overlaps(MAX_OVERLAPS)
        .iter()
        .map(|overlap| output::address(overlap.at.0))
        .collect();
    output::document(
        "show",
        json!({
            "abi": AbiText(table.abi()).to_string(),
            "entries": entries,
            "overlaps": overlaps,
            "problems": problems,
        }),
    )
}

/// How many overlaps are listed.
const MAX_OVERLAPS: usize = 1000;

fn entry(file: &ElfFile, table: &Table, fde: &Fde) -> Value {
    let row = |start: &unspool_ir::table::RowStart| {
        let row = table.row(start.row)?;
        let text = RowText(&row, table.abi()).to_string();
        Some(json!({ "address": output::address(start.start.0), "row": text }))
    };
    let symbol = file.symbols().lookup(fde.start);
    let personality = fde.personality.map(|personality| match personality {
        Pointer::Direct(addr) => json!({ "address": output::address(addr.0) }),
        Pointer::Indirect(addr) => json!({ "address_of_pointer": output::address(addr.0) }),
    });
    json!({
        "start": output::address(fde.start.0),
        "end": output::address(fde.end.0),
        "symbol": symbol.map(|symbol| demangle(&symbol.name).into_owned()),
        "personality": personality,
        "lsda": fde.lsda.map(|lsda| output::address(lsda.0)),
        "section_offset": fde.origin,
        "rows": table.rows(fde).iter().filter_map(row).collect::<Vec<_>>(),
    })
}
