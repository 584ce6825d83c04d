//! `unspool show`.

use std::io::Write;
use std::ops::Range;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use unspool_cfi::listing::{ListedInstruction, list_entries};
use unspool_cfi::{CfiSection, EntryCounts};
use unspool_elf::{ElfFile, demangle};
use unspool_rows::table::{FdeId, RowStart};
use unspool_rows::text::{AbiText, FdeText};
use unspool_rows::{Fde, Pointer, Vaddr};
use unspool_table_store::{self as tables, SourceTable};

use crate::args::tables::ShowArgs;
use crate::args::{Format, SectionArg};
use crate::output::{self, EscapedText, ExitCodes};

pub(crate) fn run(args: &ShowArgs) -> anyhow::Result<ExitCode> {
    let file = super::open(&args.file)?;
    let reading = match args.from.section() {
        Some(section) => super::read(&file, section)?,
        None => synthesize_rows(&file)?,
    };
    let selection = Selection::new(&file, args)?;
    let shown = TableView {
        file: &file,
        table: &reading,
        selection: &selection,
    };
    if !selection.is_all() && shown.selected_fdes().next().is_none() {
        shown.report_nothing(args)?;
        return Ok(ExitCode::from(ExitCodes::FINDINGS));
    }
    match (args.format, args.instructions) {
        (Format::Text, false) => shown.text()?,
        (Format::Text, true) => shown.text_with_instructions(section_of(args)?)?,
        (Format::Json, false) => shown.json(&shown.entries())?,
        (Format::Json, true) => {
            shown.json(&shown.entries_with_instructions(section_of(args)?)?)?;
        }
    }
    let status = if reading.problems.is_empty() {
        0
    } else {
        ExitCodes::FINDINGS
    };
    Ok(ExitCode::from(status))
}

/// Rows synthesized from all code of a file.
fn synthesize_rows(file: &ElfFile) -> anyhow::Result<SourceTable> {
    let synthesis = unspool_synthesis::synthesize(file, file.symbols(), &[]);
    let synthesis = synthesis.with_context(|| file.path().display().to_string())?;
    if synthesis.table.fdes().is_empty() {
        bail!("{}: no function in its code", file.path().display());
    }
    Ok(SourceTable {
        table: synthesis.table,
        problems: Vec::new(),
        counts: EntryCounts::default(),
        sections: Vec::new(),
        hdr_size: 0,
    })
}

/// The section whose instructions are shown.
fn section_of(args: &ShowArgs) -> anyhow::Result<SectionArg> {
    let section = args.from.section();
    section.context("rows made from code have no call frame instructions: leave out --instructions")
}

/// The requested entries.
struct Selection {
    /// The addresses of the requested function; `None` for all.
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

    fn has(&self, fde: &Fde) -> bool {
        let (start, end) = (fde.start, fde.end);
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

/// Prints the name of an entry's function.
fn print_name(out: &mut impl Write, file: &ElfFile, start: Vaddr) -> std::io::Result<()> {
    match file.symbols().lookup(start) {
        Some(symbol) if symbol.address == start => {
            writeln!(out, "# {}", EscapedText(&demangle(&symbol.name)))
        }
        Some(symbol) => {
            let offset = start.0.wrapping_sub(symbol.address.0);
            writeln!(
                out,
                "# {}+{offset:#x}",
                EscapedText(&demangle(&symbol.name))
            )
        }
        None => Ok(()),
    }
}

/// The table to show.
struct TableView<'a> {
    file: &'a ElfFile,
    table: &'a SourceTable,
    selection: &'a Selection,
}

impl TableView<'_> {
    fn selected_fdes(&self) -> impl Iterator<Item = &Fde> {
        let fdes = self.table.table.fdes().iter();
        fdes.filter(|fde| self.selection.has(fde))
    }

    fn sections(&self, from: SectionArg) -> anyhow::Result<Vec<CfiSection<'_>>> {
        let named = tables::sections(self.file, from.to_library())?;
        Ok(named.into_iter().map(|(section, _)| section).collect())
    }

    /// Reports that there is no entry, and which entries are nearby.
    fn report_nothing(&self, args: &ShowArgs) -> anyhow::Result<()> {
        let around = self.selection.pc.map(|pc| Neighbours::find(self.table, pc));
        let place = match (self.selection.pc, &args.function) {
            (Some(pc), None) => pc.to_string(),
            (None, Some(name)) => format!("function {name}"),
            (Some(pc), Some(name)) => format!("{pc} in function {name}"),
            (None, None) => return Ok(()),
        };
        let path = self.file.path().display();
        let neighbours = around.map(|around| around.text(self.file));
        let neighbours = neighbours.unwrap_or_default();
        output::error(&format_args!(
            "{path}: no unwind table entry covers {place}{neighbours}"
        ));
        match args.format {
            Format::Text => Ok(()),
            Format::Json => self.json(&[]),
        }
    }

    fn text(&self) -> anyhow::Result<()> {
        let mut out = output::text();
        self.head(&mut out)?;
        let table = &self.table.table;
        for fde in self.selected_fdes() {
            print_name(&mut out, self.file, fde.start)?;
            self.print_section(&mut out, fde)?;
            writeln!(out, "{}", FdeText(fde))?;
            for start in table.rows(fde) {
                if let Some(row) = table.row(start.row) {
                    let text = row.display(table.abi());
                    writeln!(out, "  {:#x}  {text}", start.start.0)?;
                }
            }
        }
        Ok(out.flush()?)
    }

    fn text_with_instructions(&self, from: SectionArg) -> anyhow::Result<()> {
        let mut out = output::text();
        self.head(&mut out)?;
        let is_wanted = |fde: &Fde| self.selection.has(fde);
        let sections = self.sections(from)?;
        for (fde, listing) in list_entries(&sections, &self.table.table, is_wanted) {
            print_name(&mut out, self.file, fde.start)?;
            self.print_section(&mut out, fde)?;
            write!(out, "{}\n{}", FdeText(fde), listing?)?;
        }
        Ok(out.flush()?)
    }

    /// The properties of the whole table. Its problems are in comments.
    fn head(&self, out: &mut impl Write) -> std::io::Result<()> {
        let table = &self.table.table;
        writeln!(out, "{}", AbiText(table.abi()))?;
        for origin in &self.table.sections {
            writeln!(out, "# section {}, {} bytes", origin.name, origin.size)?;
        }
        if tables::hdr_is_complete(self.file, self.table) == Some(false) {
            writeln!(out, "# .eh_frame_hdr {SUSPECT_HDR}")?;
        }
        for overlap in table.overlaps(MAX_OVERLAPS) {
            if let (Some(winner), Some(loser)) =
                (table.fde(overlap.winner), table.fde(overlap.loser))
            {
                writeln!(
                    out,
                    "# overlap at {}: the entry at {:#x} of the section counts, not the one at {:#x}",
                    overlap.at, winner.origin, loser.origin,
                )?;
            }
        }
        Ok(())
    }

    /// Prints an entry's section, where entries are from several.
    fn print_section(&self, out: &mut impl Write, fde: &Fde) -> std::io::Result<()> {
        let section = self.table.section(fde);
        let section =
            section.filter(|section| section.entries.len() < self.table.table.fdes().len());
        section.map_or(Ok(()), |section| writeln!(out, "# in {}", section.name))
    }

    fn entries(&self) -> Vec<Value> {
        let table = &self.table.table;
        let row = |start: RowStart| {
            let row = table.row(start.row)?;
            let text = row.display(table.abi()).to_string();
            Some(json!({ "address": output::address(start.start.0), "rules": text }))
        };
        let rows = |fde| table.rows(fde).filter_map(row).collect::<Vec<_>>();
        self.selected_fdes()
            .map(|fde| self.entry(fde, &rows(fde)))
            .collect()
    }

    fn entries_with_instructions(&self, from: SectionArg) -> anyhow::Result<Vec<Value>> {
        let mut entries = Vec::new();
        let is_wanted = |fde: &Fde| self.selection.has(fde);
        let sections = self.sections(from)?;
        for (fde, listing) in list_entries(&sections, &self.table.table, is_wanted) {
            let listing = listing?;
            let rows = listing.rows.iter().map(|row| {
                json!({
                    "address": output::address(row.start.0),
                    "rules": row.text,
                    "instructions": instructions(&row.instructions),
                })
            });
            let mut entry = self.entry(fde, &rows.collect::<Vec<_>>());
            if let Some(object) = entry.as_object_mut() {
                let cie = json!({
                    "section_offset": listing.cie,
                    "version": listing.version,
                    "augmentation": listing.augmentation,
                    "code_alignment": listing.code_alignment,
                    "data_alignment": listing.data_alignment,
                    "instructions": instructions(&listing.initial),
                });
                object.insert("cie".into(), cie);
                let past_end = instructions(&listing.past_end);
                object.insert("instructions_past_end".into(), past_end);
            }
            entries.push(entry);
        }
        Ok(entries)
    }

    fn entry(&self, fde: &Fde, rows: &[Value]) -> Value {
        let symbol = self.file.symbols().lookup(fde.start);
        let personality = fde.personality.map(|personality| match personality {
            Pointer::Direct(addr) => json!({ "address": output::address(addr.0) }),
            Pointer::Indirect(addr) => json!({ "pointer_address": output::address(addr.0) }),
        });
        json!({
            "start": output::address(fde.start.0),
            "end": output::address(fde.end.0),
            "symbol": symbol.map(|symbol| demangle(&symbol.name).into_owned()),
            "personality": personality,
            "lsda": fde.lsda.map(|lsda| output::address(lsda.0)),
            "section": self.table.section(fde).map(|section| &section.name),
            "section_offset": fde.origin,
            "rows": rows,
        })
    }

    fn json(&self, entries: &[Value]) -> anyhow::Result<()> {
        let table = &self.table.table;
        let hdr_is_complete = tables::hdr_is_complete(self.file, self.table);
        let entry_problems = self.table.problems.iter().map(ToString::to_string);
        let hdr_problem =
            (hdr_is_complete == Some(false)).then(|| format!(".eh_frame_hdr {SUSPECT_HDR}"));
        let problems: Vec<_> = entry_problems.chain(hdr_problem).collect();
        let origin = |id: FdeId| table.fde(id).map(|fde| fde.origin);
        let overlaps: Vec<Value> = table
            .overlaps(MAX_OVERLAPS)
            .iter()
            .map(|overlap| {
                json!({
                    "address": output::address(overlap.at.0),
                    "effective_entry": origin(overlap.winner),
                    "shadowed_entry": origin(overlap.loser),
                })
            })
            .collect();
        let is_hole = entries.is_empty();
        let pc = self.selection.pc.filter(|_| is_hole);
        let neighbours = pc.map(|pc| Neighbours::find(self.table, pc));
        let body = json!({
            "abi": AbiText(table.abi()).to_string(),
            "sections": super::sections(&self.table.sections),
            "eh_frame_hdr": hdr_is_complete.map(|complete| if complete { "complete" } else { "incomplete" }),
            "entries": entries,
            "neighbours": neighbours.map(|around| around.json(self.file)),
            "overlaps": overlaps,
            "problems": problems,
        });
        Ok(output::document("show", &body)?)
    }
}

fn instructions(listed: &[ListedInstruction]) -> Value {
    let listed = listed.iter().map(
        |one| json!({ "section_offset": one.offset, "instruction": one.text, "count": one.count }),
    );
    listed.collect()
}

/// The entries on both sides of a gap.
struct Neighbours<'a> {
    /// The one that ends last, at or before the address.
    before: Option<&'a Fde>,
    /// The one that starts first after it.
    after: Option<&'a Fde>,
}

impl<'a> Neighbours<'a> {
    fn find(table: &'a SourceTable, pc: Vaddr) -> Self {
        let fdes = || table.table.fdes().iter();
        Neighbours {
            before: fdes().filter(|f| f.end <= pc).max_by_key(|f| f.end),
            after: fdes().filter(|f| f.start > pc).min_by_key(|f| f.start),
        }
    }

    fn text(&self, file: &ElfFile) -> String {
        let text = |fde: &Fde| {
            let name = file.symbols().lookup(fde.start);
            let name = name.map(|symbol| format!(" ({})", demangle(&symbol.name)));
            format!("{}{}", FdeText(fde), name.unwrap_or_default())
        };
        match (self.before.map(text), self.after.map(text)) {
            (Some(before), Some(after)) => format!(": it lies between {before} and {after}"),
            (None, Some(after)) => format!(": the first entry is {after}"),
            (Some(before), None) => format!(": the last entry is {before}"),
            (None, None) => String::new(),
        }
    }

    fn json(&self, file: &ElfFile) -> Value {
        let json = |fde: &Fde| {
            let symbol = file.symbols().lookup(fde.start);
            json!({
                "start": output::address(fde.start.0),
                "end": output::address(fde.end.0),
                "symbol": symbol.map(|symbol| demangle(&symbol.name).into_owned()),
            })
        };
        json!({ "before": self.before.map(json), "after": self.after.map(json) })
    }
}

/// The problem of an unusable `.eh_frame_hdr`.
const SUSPECT_HDR: &str = "does not list just these entries in order, or they overlap: unwinders that search it may find \
     another entry or none";

/// The most overlaps to list.
const MAX_OVERLAPS: usize = 1000;
