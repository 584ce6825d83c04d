//! `unspool convert`.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};
use unspool_cfi::EhFrame;
use unspool_cfi::sframe::{SearchProblem, SframeConversion, SframeVersion, Unrepresentable};
use unspool_elf::{ElfFile, ElfKind, demangle};
use unspool_rows::{Table, Vaddr};
use unspool_table_store::{self as tables, SframeTable, TableSource, eh_frame};

use crate::args::tables::{ConvertArgs, ConvertTarget, SframeVersionArg};
use crate::args::{Format, SectionArg};
use crate::output::{self, EscapedText, ExitCodes};

impl SframeVersionArg {
    fn to_library(self) -> SframeVersion {
        match self {
            SframeVersionArg::V2 => SframeVersion::V2,
            SframeVersionArg::V3 => SframeVersion::V3,
        }
    }
}

pub(crate) fn run(args: &ConvertArgs) -> anyhow::Result<ExitCode> {
    let file = super::open(&args.file)?;
    if file.kind() == ElfKind::Relocatable {
        bail!(
            "{}: its addresses are not final; link it first, or have `as --gsframe` write its SFrame",
            args.file.display()
        );
    }
    let report = match args.to {
        ConvertTarget::Sframe => to_sframe(&file, args)?,
        ConvertTarget::EhFrame => to_eh_frame(&file, args)?,
    };
    match args.format {
        Format::Text => report.text(&file, args.all)?,
        Format::Json => output::document("convert", &report.json(&file))?,
    }
    Ok(match report.bad_entries {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::from(ExitCodes::FINDINGS),
    })
}

fn to_sframe(file: &ElfFile, args: &ConvertArgs) -> anyhow::Result<ConvertReport> {
    let version = args.version.to_library();
    let from = args.from.unwrap_or(SectionArg::Auto).to_library();
    let table = SframeTable::from_file(file, from, version)?;
    super::report_problems(file, &table.source);
    let place = match (&args.output, &args.into) {
        (Some(output), _) => {
            let address = args.address.map(Vaddr).or_else(|| own_address(file));
            let bytes = table.bytes_at(address.unwrap_or_default())?;
            super::write(output, &bytes, None)?;
            Some(output)
        }
        (None, Some(into)) => {
            let elf = table.embed(file)?;
            file.check_unchanged()?;
            let permissions = fs::metadata(&args.file)?.permissions();
            super::write(into, &elf, Some(permissions))?;
            Some(into)
        }
        (None, None) => None,
    };
    let sections = table.source.sections.iter().map(|origin| origin.size);
    Ok(ConvertReport {
        version: Some(version),
        written: place.cloned(),
        bytes: table.size(),
        source_bytes: sections.sum::<u64>() + table.source.hdr_size,
        bad_entries: table.source.problems.len(),
        conversion: table.conversion,
        reordered: table.reordered,
    })
}

fn own_address(file: &ElfFile) -> Option<Vaddr> {
    Some(file.sframes().ok()?.first()?.address)
}

fn to_eh_frame(file: &ElfFile, args: &ConvertArgs) -> anyhow::Result<ConvertReport> {
    let reading = super::read(file, args.from.unwrap_or(SectionArg::Sframe))?;
    let path = || args.file.display().to_string();
    let written = EhFrame::from_table(&reading.table).with_context(path)?;
    let mut bytes = written.len();
    let place = match (&args.output, &args.into) {
        (Some(output), _) => {
            let own = file.eh_frames()?.first().map(|section| section.address);
            let address = args.address.map(Vaddr).or(own).unwrap_or_default();
            super::write(output, &written.bytes_at(address)?, None)?;
            Some(output)
        }
        (None, Some(into)) => {
            let own = tables::read_if_any_from(file, TableSource::EhFrame)?;
            ensure!(
                own.fdes().is_empty(),
                "{}: it has an .eh_frame, which says more; --output writes the bytes of the other one",
                path()
            );
            let made = eh_frame::embed(file, &reading.table)?;
            bytes = made.table_bytes;
            file.check_unchanged()?;
            let permissions = fs::metadata(&args.file)?.permissions();
            super::write(into, &made.elf, Some(permissions))?;
            Some(into)
        }
        (None, None) => None,
    };
    let sections = reading.sections.iter().map(|origin| origin.size);
    Ok(ConvertReport {
        version: None,
        written: place.cloned(),
        bytes,
        source_bytes: sections.sum::<u64>() + reading.hdr_size,
        bad_entries: reading.problems.len(),
        conversion: SframeConversion {
            plain: covering(&reading.table),
            ..SframeConversion::default()
        },
        reordered: Vec::new(),
    })
}

fn covering(table: &Table) -> usize {
    let fdes = table.fdes().iter();
    fdes.filter(|fde| fde.start < fde.end).count()
}

/// The result for a file's table.
struct ConvertReport {
    /// The version of SFrame; `None` for .eh_frame.
    version: Option<SframeVersion>,
    written: Option<PathBuf>,
    bytes: usize,
    /// Bytes of the section that was read, with its search table.
    source_bytes: u64,
    bad_entries: usize,
    conversion: SframeConversion,
    reordered: Vec<SearchProblem>,
}

impl ConvertReport {
    fn entries(&self) -> usize {
        self.conversion.plain + self.conversion.flexible + self.conversion.incomplete
    }

    fn text(&self, file: &ElfFile, all: bool) -> anyhow::Result<()> {
        let mut out = output::text();
        let target = match self.version {
            Some(version) => format!("SFrame {}", version.number()),
            None => ".eh_frame".to_owned(),
        };
        let kinds = match (self.conversion.flexible, self.conversion.incomplete) {
            (0, 0) => String::new(),
            (flexible, 0) => format!(" ({flexible} flexible)"),
            (flexible, incomplete) => {
                format!(" ({flexible} flexible, {incomplete} not all of it)")
            }
        };
        writeln!(
            out,
            "{}: {} entries{kinds} as {}: {} bytes, of {}",
            output::path(file.path()),
            self.entries(),
            target,
            self.bytes,
            self.source_bytes,
        )?;
        if let Some(written) = &self.written {
            writeln!(out, "  {}", output::path(written))?;
        }
        for (what, count) in self.mended() {
            writeln!(out, "  put in order: {count} {what}")?;
        }
        let mut by_reason: BTreeMap<String, Vec<&Unrepresentable>> = BTreeMap::new();
        for refused in &self.conversion.unrepresentable {
            by_reason
                .entry(refused.reason.to_string())
                .or_default()
                .push(refused);
        }
        for (why, refused) in by_reason {
            writeln!(out, "\n{} left out: {why}", refused.len())?;
            let shown = if all { refused.len() } else { MAX_EXAMPLES };
            for refused in refused.iter().take(shown) {
                let name = name(file, refused.start);
                let (start, end) = (refused.start, refused.end);
                writeln!(out, "  {start}..{end}  {}", EscapedText(&name))?;
            }
            let hidden = refused.len() - shown.min(refused.len());
            if hidden > 0 {
                writeln!(out, "  and {hidden} more (--all)")?;
            }
        }
        Ok(out.flush()?)
    }

    /// The corrections, and how often each was made.
    fn mended(&self) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        for disorder in &self.reordered {
            let what = match disorder {
                SearchProblem::Concatenated { .. } => "more headers",
                SearchProblem::Unsorted { .. } => {
                    "entries that begin before the one that precedes them"
                }
                SearchProblem::Overlap { .. } => "entries that overlap another",
            };
            *counts.entry(what).or_default() += 1;
        }
        counts
    }

    fn json(&self, file: &ElfFile) -> Value {
        let refused = self.conversion.unrepresentable.iter().map(|refused| {
            json!({
                "start": output::address(refused.start.0),
                "end": output::address(refused.end.0),
                "function": name(file, refused.start),
                "section_offset": refused.origin,
                "reason": refused.reason.to_string(),
            })
        });
        json!({
            "file": file.path().to_string_lossy(),
            "format": match self.version {
                Some(version) => format!("sframe-{}", version.number()),
                None => "eh-frame".to_owned(),
            },
            "output": self.written.as_deref().map(Path::to_string_lossy),
            "bytes": self.bytes,
            "source_bytes": self.source_bytes,
            "bad_entries": self.bad_entries,
            "entries": self.entries(),
            "default_entries": self.conversion.plain,
            "flexible_entries": self.conversion.flexible,
            "incomplete_entries": self.conversion.incomplete,
            "unrepresentable": refused.collect::<Vec<_>>(),
            "reordered": self.mended(),
        })
    }
}

/// The most examples shown for one reason of omission.
const MAX_EXAMPLES: usize = 5;

/// The function at an address, or nothing.
fn name(file: &ElfFile, address: Vaddr) -> String {
    let symbol = file.symbols().lookup(address);
    symbol.map_or(String::new(), |symbol| demangle(&symbol.name).into_owned())
}
