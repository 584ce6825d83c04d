//! `cargo xtask outline`: the smallest encoding of `.eh_frame`'s rows, and the size of outlined
//! instructions.
//!
//! First, each file's entries are rewritten by [`EhFrame`], with one more [`SizeOptimization`] in
//! each column; each result is read back and compared. Then come bounds: the size of `.eh_frame`
//! and its search table if instructions were stored once and entries referred to them.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::PathBuf;

use unspool_cfi::{
    CfiSection, Cie, EhFrame, Instruction, Instructions, ParsedFde, SectionKind, SizeOptimization,
};
use unspool_rows::Table;
use unspool_rows::diff::{DiffScope, differences};

use crate::Error;
use crate::elf;

/// Prints both tables, as Markdown, for some files.
///
/// # Errors
///
/// A file cannot be read, has no `.eh_frame`, or its rewritten form differs.
pub fn run(files: impl Iterator<Item = OsString>, out: &mut impl Write) -> Result<(), Error> {
    let mut all = Vec::new();
    for file in files.map(PathBuf::from) {
        let outlined = OutlineSizes::from_file(&fs::read(&file)?);
        let outlined = outlined.map_err(|error| format!("{}: {error}", file.display()))?;
        let name = file.file_name().unwrap_or_default();
        all.push((name.to_string_lossy().into_owned(), outlined));
    }
    writeln!(
        out,
        "| `.eh_frame` | as linked | plain | padding | repeats | words | states | beginnings | left | padding left |\n\
         |---|---|---|---|---|---|---|---|---|---|"
    )?;
    for (name, outlined) in &all {
        outlined.print_written(name, out)?;
    }
    writeln!(
        out,
        "\n| with search table | as linked | written anew | sequences once | suffixes once | steps apart | no frames | no frames, steps apart |\n\
         |---|---|---|---|---|---|---|---|"
    )?;
    for (name, outlined) in &all {
        outlined.print_bounds(name, out)?;
    }
    Ok(())
}

/// The sizes of a file's `.eh_frame`, in bytes.
struct OutlineSizes {
    linked: usize,
    /// Rewritten: without optimizations, and with one more each.
    written: Vec<usize>,
    /// The entries of the smallest.
    totals: FdeTotals,
}

impl OutlineSizes {
    fn from_file(file: &[u8]) -> Result<OutlineSizes, Error> {
        let units = elf::units(file)?;
        let unit = units.first().ok_or("no file")?;
        let mut frames = unit.sections.iter();
        let frame = frames.find(|frame| frame.kind == SectionKind::EhFrame);
        let frame = frame.ok_or("no .eh_frame")?;
        let linked = unit.section(frame);
        let source = unspool_cfi::read_tables(unit.abi, &[linked]).table;
        let mut written = Vec::new();
        let mut shortest = Vec::new();
        for measures in
            (0..=SizeOptimization::ALL.len()).filter_map(|count| SizeOptimization::ALL.get(..count))
        {
            shortest = EhFrame::with_optimizations(&source, measures)?.bytes_at(frame.address)?;
            prove(
                &source,
                &CfiSection {
                    data: &shortest,
                    ..linked
                },
            )?;
            written.push(shortest.len());
        }
        Ok(OutlineSizes {
            linked: frame.data.len(),
            written,
            totals: FdeTotals::from_section(&CfiSection {
                data: &shortest,
                ..linked
            })?,
        })
    }

    fn print_written(&self, name: &str, out: &mut impl Write) -> Result<(), Error> {
        write!(out, "| {name} | {}", self.linked)?;
        for written in &self.written {
            write!(out, " | {written}")?;
        }
        let left = self.written.last().copied().unwrap_or(0);
        let left = percent(left, self.linked);
        Ok(writeln!(out, " | {left} | {} |", self.totals.padding)?)
    }

    fn print_bounds(&self, name: &str, out: &mut impl Write) -> Result<(), Error> {
        let entries = &self.totals;
        let search = HDR + HDR_ENTRY * entries.count;
        let linked = self.linked + search;
        write!(out, "| {name} | {linked}")?;
        let framed =
            search + entries.cies + (MIN_FDE_BYTES + REFERENCE) * entries.count + entries.lsdas;
        let bare =
            HDR + entries.cies + (SEARCH_ENTRY_BYTES + REFERENCE) * entries.count + entries.lsdas;
        for bytes in [
            self.written.last().copied().unwrap_or(0) + search,
            framed + once(&entries.sequences),
            framed + suffixes_once(&entries.sequences),
            framed + entries.steps + once(&entries.without_steps),
            bare + once(&entries.sequences),
            bare + entries.steps + once(&entries.without_steps),
        ] {
            write!(out, " | {}", percent(bytes, linked))?;
        }
        Ok(writeln!(out, " |")?)
    }
}

fn percent(bytes: usize, of: usize) -> String {
    let tenths = (bytes * 1000 + of / 2) / of.max(1);
    format!("{}.{} %", tenths / 10, tenths % 10)
}

/// The header of `.eh_frame_hdr`, and an entry of it.
const HDR: usize = 12;
const HDR_ENTRY: usize = 8;

/// An FDE without LSDA, instructions and padding: length, CIE, start, number of addresses,
/// augmentation length.
const MIN_FDE_BYTES: usize = 4 + 4 + 4 + 4 + 1;

/// The fields of an entry in a search table alone: start, number of addresses.
const SEARCH_ENTRY_BYTES: usize = 4 + 4;

/// The size of a reference to instructions elsewhere; without frames, to a CIE, too.
const REFERENCE: usize = 2;

/// The FDEs of a section.
#[derive(Default)]
struct FdeTotals {
    count: usize,
    /// Bytes of CIEs, and of references to LSDAs.
    cies: usize,
    lsdas: usize,
    padding: usize,
    /// The distinct instruction sequences of entries.
    sequences: BTreeSet<Vec<u8>>,
    /// The same without the `DW_CFA_advance_loc` family, and the bytes of these in all entries.
    without_steps: BTreeSet<Vec<u8>>,
    steps: usize,
}

impl FdeTotals {
    fn from_section(section: &CfiSection<'_>) -> Result<FdeTotals, Error> {
        let mut entries = FdeTotals::default();
        for (offset, entry) in section.entries() {
            let entry = entry?;
            let Some(cie) = entry.cie else {
                let cie = Cie::parse(section, entry)?;
                let end = cie.instructions_offset + cie.instructions.len() as u64;
                entries.cies += usize::try_from(end - offset)?;
                continue;
            };
            let cie = Cie::parse_at(section, cie)?;
            let fde = ParsedFde::parse(section, &cie, entry)?;
            entries.add(section, &cie, &fde)?;
        }
        Ok(entries)
    }

    fn add(
        &mut self,
        section: &CfiSection<'_>,
        cie: &Cie<'_>,
        fde: &ParsedFde<'_>,
    ) -> Result<(), Error> {
        let (mut sequence, mut without_steps) = (Vec::new(), Vec::new());
        let (from, len) = (fde.instructions_offset, fde.instructions.len());
        let mut instructions = Instructions::new(section, cie, from, len);
        while let Some(instruction) = instructions.next() {
            let (at, instruction) = instruction?;
            let range = usize::try_from(at)?..usize::try_from(instructions.offset())?;
            let bytes = section.data.get(range).ok_or("cut short")?;
            match instruction {
                Instruction::Nop => continue,
                Instruction::AdvanceLoc(_) => self.steps += bytes.len(),
                _ => without_steps.extend(bytes),
            }
            sequence.extend(bytes);
        }
        self.count += 1;
        self.lsdas += usize::from(fde.lsda.is_some()) * 4;
        self.padding += len - sequence.len();
        self.sequences.insert(sequence);
        self.without_steps.insert(without_steps);
        Ok(())
    }
}

/// The bytes of distinct sequences, each with a terminator.
fn once(sequences: &BTreeSet<Vec<u8>>) -> usize {
    sequences.iter().map(|sequence| sequence.len() + 1).sum()
}

/// The same if a sequence can be a suffix of another.
fn suffixes_once(sequences: &BTreeSet<Vec<u8>>) -> usize {
    let backwards = sequences
        .iter()
        .map(|sequence| sequence.iter().rev().collect());
    let mut backwards: Vec<Vec<&u8>> = backwards.collect();
    backwards.sort_unstable();
    let next = backwards.iter().skip(1).map(Some).chain([None]);
    let pairs = backwards.iter().zip(next);
    let whole =
        pairs.filter(|(sequence, next)| !next.is_some_and(|next| next.starts_with(sequence)));
    whole.map(|(sequence, _)| sequence.len() + 1).sum()
}

/// Reads the output back, and compares every row, entry, personality routine and LSDA.
fn prove(source: &Table, written: &CfiSection<'_>) -> Result<(), Error> {
    let back = unspool_cfi::read_tables(source.abi(), &[*written]);
    let difference = differences(source, &back.table, DiffScope::RowsAndEntries);
    match (back.problems.first(), difference.first()) {
        (None, None) => Ok(()),
        (Some(problem), _) => Err(format!("what was written cannot be read: {problem}").into()),
        (_, Some(found)) => Err(format!("what was written differs at {}", found.start).into()),
    }
}
