//! Compares unspool's call frame information of a file with `readelf`'s, row by row.
//!
//! Where `readelf` (binutils 2.40) deviates, only this comparison follows it:
//!
//! - Offsets are stored in an `int`: the low 32 bits are compared ([`crate::normal_row`]).
//! - `u` means both "undefined" and "no rule"; an undefined CFA is register 0 plus 0. The list of
//!   instructions distinguishes them ([`crate::row_facts`]).
//! - An entry of only `nop` instructions has no rows: its row is its CIE's.
//! - Several rows may start at one address, and rows at or past the end of the entry. Of the
//!   former, the last is valid, and of the latter none.
//!
//! Not followed, because no file of a Debian machine has them: `readelf` gives an FDE before its
//! CIE none of the CIE's rules. It stops at a return-address column above 126.
//!
//! An entry that unspool refuses is not a difference; it is counted, and reported as a problem.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;

use unspool_cfi::{CfiProblem, SectionTable, read_table};
use unspool_rows::arch::Arch;
use unspool_rows::{Abi, Fde, Register};

use crate::Error;
use crate::elf::{self, CfiFile};
use crate::normal_row::{CieFields, NormalRow, NormalRowText};
use crate::readelf::{DumpEntry, DumpHeader, DumpItem, DumpRow, Readelf, ReadelfForm};
use crate::row_facts::{RowFacts, row_facts};

/// The most differences to keep for a file.
const MAX_DIFFERENCES: usize = 20;

/// The result for a file.
#[derive(Debug, Default)]
pub struct ReadelfReport {
    /// Sections compared.
    pub sections: u64,
    /// FDEs that both readers have.
    pub fdes: u64,
    /// Rows that both readers have.
    pub rows: u64,
    /// Entries that unspool refuses, with the archive member.
    pub problems: Vec<(Option<String>, CfiProblem)>,
    /// The number of differences.
    pub difference_count: u64,
    /// The first of them.
    pub differences: Vec<ReadelfDifference>,
}

/// A difference between the two readers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadelfDifference {
    /// The archive member, if there is one, and the section.
    pub place: String,
    /// The offset of the entry in the section.
    pub entry: u64,
    /// The address, if it is about one.
    pub at: Option<u64>,
    /// Unspool's result.
    pub ours: String,
    /// `readelf`'s result.
    pub theirs: String,
}

impl fmt::Display for ReadelfDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} entry at offset {:#x}", self.place, self.entry)?;
        if let Some(at) = self.at {
            write!(f, ", pc {at:#x}")?;
        }
        write!(f, "\n  ours:   {}\n  theirs: {}", self.ours, self.theirs)
    }
}

/// Reads a file, ELF or archive, with both readers and compares.
///
/// # Errors
///
/// The file cannot be read, or `readelf` cannot be run.
pub fn compare_file(path: &Path) -> Result<ReadelfReport, Error> {
    let data = std::fs::read(path)?;
    compare(path, &elf::units(&data)?)
}

/// Compares the units of the file at `path` with `readelf`'s output for it.
///
/// # Errors
///
/// `readelf` cannot be run.
pub fn compare(path: &Path, units: &[CfiFile<'_>]) -> Result<ReadelfReport, Error> {
    let mut report = ReadelfReport::default();
    let sections: usize = units.iter().map(|unit| unit.sections.len()).sum();
    let mut units = units.iter();
    let Some(mut unit) = units.as_slice().first() else {
        return Ok(report);
    };
    if sections == 0 {
        return Ok(report);
    }
    let mut rows = Readelf::start(path, ReadelfForm::Rows, unit.abi.arch)?;
    let mut instructions = Readelf::start(path, ReadelfForm::Instructions, unit.abi.arch)?;
    let mut compared = 0;
    let mut comparison: Option<SectionComparison<'_>> = None;
    loop {
        let item = rows.next_item()?;
        let Some(item) = both(item, instructions.next_item()?)? else {
            break;
        };
        match item {
            ItemPair::Member(name) => {
                close(&mut report, comparison.take());
                // Members that are not ELF files are printed, too.
                if let Some(at) = place(units.as_slice(), &name) {
                    unit = units.nth(at).unwrap_or(unit);
                    rows.set_arch(unit.abi.arch);
                    instructions.set_arch(unit.abi.arch);
                    compared = 0;
                }
            }
            ItemPair::Section(name) => {
                close(&mut report, comparison.take());
                if is_compared(&name) {
                    let frame = unit.sections.get(compared);
                    let frame = frame.ok_or("readelf prints a section that we do not find")?;
                    compared += 1;
                    let reading = read_table(&unit.section(frame));
                    comparison = Some(SectionComparison::new(unit, name, reading));
                }
            }
            ItemPair::Entry(rows, instructions) => {
                if let Some(open) = &mut comparison {
                    open.entry(&mut report, &rows, &instructions);
                }
            }
        }
    }
    close(&mut report, comparison.take());
    for line in rows.strange().iter().chain(instructions.strange()) {
        report.differ(of_file(
            "a line that is not understood".to_owned(),
            line.clone(),
        ));
    }
    if sections as u64 != report.sections {
        let theirs = format!("{} sections", report.sections);
        report.differ(of_file(format!("{sections} sections"), theirs));
    }
    Ok(report)
}

fn of_file(ours: String, theirs: String) -> ReadelfDifference {
    ReadelfDifference {
        place: "the whole file".to_owned(),
        entry: 0,
        at: None,
        ours,
        theirs,
    }
}

/// Sections of other names are stale copies: `.bolt.org.eh_frame`.
fn is_compared(name: &str) -> bool {
    matches!(name, ".eh_frame" | ".debug_frame" | ".zdebug_frame")
}

fn place(units: &[CfiFile<'_>], name: &str) -> Option<usize> {
    units
        .iter()
        .position(|unit| unit.member.as_deref() == Some(name))
}

/// The same item in both forms.
enum ItemPair {
    Member(String),
    Section(String),
    Entry(Box<DumpEntry>, Box<DumpEntry>),
}

fn both(rows: Option<DumpItem>, instructions: Option<DumpItem>) -> Result<Option<ItemPair>, Error> {
    Ok(match (rows, instructions) {
        (None, None) => None,
        (Some(DumpItem::Member(name)), Some(DumpItem::Member(same))) if name == same => {
            Some(ItemPair::Member(name))
        }
        (Some(DumpItem::Section(name)), Some(DumpItem::Section(same))) if name == same => {
            Some(ItemPair::Section(name))
        }
        (Some(DumpItem::Entry(rows)), Some(DumpItem::Entry(instructions)))
            if rows.offset == instructions.offset =>
        {
            Some(ItemPair::Entry(Box::new(rows), Box::new(instructions)))
        }
        (rows, instructions) => {
            let error = format!("the outputs of readelf do not match: {rows:?}, {instructions:?}");
            return Err(error.into());
        }
    })
}

fn close(report: &mut ReadelfReport, comparison: Option<SectionComparison<'_>>) {
    if let Some(open) = comparison {
        open.finish(report);
    }
}

impl ReadelfReport {
    fn differ(&mut self, difference: ReadelfDifference) {
        self.difference_count += 1;
        if self.differences.len() < MAX_DIFFERENCES {
            self.differences.push(difference);
        }
    }
}

/// A section under comparison.
struct SectionComparison<'u> {
    cfi_file: &'u CfiFile<'u>,
    place: String,
    table: SectionTable,
    abi: Abi,
    /// Unspool's rows in the common form, by ID.
    normals: Vec<Option<NormalRow>>,
    cies: HashMap<u64, ReadelfCie>,
    /// The locations of unspool's FDEs that `readelf` has not printed yet.
    undumped: u64,
}

/// The data of a CIE that its FDEs inherit.
struct ReadelfCie {
    cie: CieFields,
    facts: RowFacts,
    row: DumpRow,
}

impl<'u> SectionComparison<'u> {
    fn new(cfi_file: &'u CfiFile<'u>, name: String, table: SectionTable) -> Self {
        let place = match &cfi_file.member {
            Some(member) => format!("({member}) {name}"),
            None => name,
        };
        SectionComparison {
            cfi_file,
            place,
            abi: cfi_file.abi,
            normals: vec![None; table.table.distinct_rows()],
            undumped: table.table.fdes().len() as u64,
            table,
            cies: HashMap::new(),
        }
    }

    fn finish(self, report: &mut ReadelfReport) {
        report.sections += 1;
        if self.undumped > 0 {
            let ours = format!("{} FDEs that readelf does not print", self.undumped);
            report.differ(self.difference(0, None, ours, String::new()));
        }
        let member = &self.cfi_file.member;
        let problems = self.table.problems.iter();
        report
            .problems
            .extend(problems.map(|problem| (member.clone(), *problem)));
    }

    fn difference(
        &self,
        entry: u64,
        at: Option<u64>,
        ours: String,
        theirs: String,
    ) -> ReadelfDifference {
        ReadelfDifference {
            place: self.place.clone(),
            entry,
            at,
            ours,
            theirs,
        }
    }

    fn entry(&mut self, report: &mut ReadelfReport, rows: &DumpEntry, instructions: &DumpEntry) {
        for line in rows
            .unparsed_lines
            .iter()
            .chain(&instructions.unparsed_lines)
        {
            if self.problem(rows.offset).is_none() {
                let ours = "a line that is not understood".to_owned();
                report.differ(self.difference(rows.offset, None, ours, line.clone()));
            }
        }
        match &rows.header {
            DumpHeader::Terminator => {}
            DumpHeader::Cie(Some(line)) => {
                let cie = CieFields {
                    return_address: line.return_address,
                    signal_frame: line.augmentation.contains('S'),
                };
                let all = row_facts(&instructions.instructions, &RowFacts::default());
                let row = rows.rows.last().cloned().unwrap_or_else(no_row);
                let abi_info = all.last().cloned().unwrap_or_default();
                let cie = ReadelfCie {
                    cie,
                    facts: abi_info,
                    row,
                };
                self.cies.insert(rows.offset, cie);
            }
            DumpHeader::Cie(None) => {
                let ours = "the first line of a CIE that is not understood".to_owned();
                report.differ(self.difference(rows.offset, None, ours, String::new()));
            }
            DumpHeader::Fde { .. } => self.fde(report, rows, instructions),
        }
    }

    fn problem(&self, offset: u64) -> Option<&CfiProblem> {
        self.table
            .problems
            .iter()
            .find(|problem| problem.entry == offset)
    }

    fn our_fde(&self, offset: u64) -> Option<Fde> {
        let fdes = self.table.table.fdes();
        let at = fdes.binary_search_by_key(&offset, |fde| fde.origin).ok()?;
        fdes.get(at).copied()
    }

    fn fde(&mut self, report: &mut ReadelfReport, rows: &DumpEntry, instructions: &DumpEntry) {
        let DumpHeader::Fde { cie, start, end } = rows.header else {
            return;
        };
        let offset = rows.offset;
        let Some(fde) = self.our_fde(offset) else {
            if self.problem(offset).is_none() {
                let theirs = format!("FDE {start:#x}..{end:#x}");
                report.differ(self.difference(offset, None, "nothing".to_owned(), theirs));
            }
            return;
        };
        self.undumped -= 1;
        report.fdes += 1;
        if (fde.start.0, fde.end.0) != (start, end) {
            let ours = format!("FDE {}..{}", fde.start, fde.end);
            let theirs = format!("FDE {start:#x}..{end:#x}");
            report.differ(self.difference(offset, None, ours, theirs));
            return;
        }
        let theirs = match cie.and_then(|cie| self.cies.get(&cie)) {
            Some(cie) => their_rows(rows, instructions, cie),
            None => Err("no CIE before the FDE".to_owned()),
        };
        match theirs {
            Ok(theirs) => self.rows(report, &fde, &theirs),
            Err(theirs) => {
                report.differ(self.difference(offset, None, "an FDE".to_owned(), theirs));
            }
        }
    }

    /// Compares the rows of an entry.
    fn rows(&mut self, report: &mut ReadelfReport, fde: &Fde, theirs: &[(u64, NormalRow)]) {
        let table = &self.table.table;
        let mut ours = table.rows(fde);
        let arch = self.abi.arch;
        for n in 0..ours.len().max(theirs.len()) {
            let our = ours.next().map(|row| {
                let slot = self.normals.get_mut(row.row.0 as usize);
                let normal = slot.and_then(|slot| {
                    if slot.is_none() {
                        *slot = table
                            .row(row.row)
                            .map(|row| NormalRow::from_row(&row, self.abi));
                    }
                    slot.as_ref()
                });
                (row.start.0, normal)
            });
            let their = theirs.get(n).map(|(at, row)| (*at, Some(row)));
            if our == their {
                report.rows += 1;
                continue;
            }
            let (ours, theirs) = (text(our, arch), text(their, arch));
            let at = their.or(our).map(|(at, _)| at);
            report.differ(ReadelfDifference {
                place: self.place.clone(),
                entry: fde.origin,
                at,
                ours,
                theirs,
            });
            return;
        }
    }
}

fn text(row: Option<(u64, Option<&NormalRow>)>, arch: Arch) -> String {
    match row {
        Some((at, Some(row))) => format!("{at:#x} {}", NormalRowText(row, arch)),
        Some((at, None)) => format!("{at:#x} that cannot be decoded"),
        None => "no more rows".to_owned(),
    }
}

fn no_row() -> DumpRow {
    DumpRow {
        at: 0,
        cfa: Some((Register(0), 0)),
        cells: Vec::new(),
    }
}

/// The rows that are valid somewhere in the entry.
fn their_rows(
    rows: &DumpEntry,
    instructions: &DumpEntry,
    cie: &ReadelfCie,
) -> Result<Vec<(u64, NormalRow)>, String> {
    let DumpHeader::Fde { start, end, .. } = rows.header else {
        return Ok(Vec::new());
    };
    let abi_info = row_facts(&instructions.instructions, &cie.facts);
    let from_cie = [DumpRow {
        at: start,
        ..cie.row.clone()
    }];
    let printed: &[DumpRow] = match rows.rows.as_slice() {
        [] => &from_cie,
        rows => rows,
    };
    if printed.len() != abi_info.len() {
        return Err(format!(
            "{} rows, and instructions for {}",
            printed.len(),
            abi_info.len()
        ));
    }
    let mut held: Vec<(u64, NormalRow)> = Vec::new();
    for (row, abi_info) in printed.iter().zip(&abi_info) {
        if held.last().is_some_and(|(at, _)| *at == row.at) {
            held.pop();
        }
        held.push((row.at, NormalRow::from_readelf(row, abi_info, cie.cie)));
    }
    held.retain(|(at, _)| *at < end);
    Ok(held)
}
