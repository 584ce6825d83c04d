//! The unwind table of an ELF file.

use core::ops::Range;
use core::{fmt, ptr};

use unspool_cfi::lookup::HdrTrust;
use unspool_cfi::orc::{self, OrcProblem, OrcSections, OrcVersion};
use unspool_cfi::sframe::{self, SframeAbi, SframeProblem};
use unspool_cfi::{CfiProblem, CfiSection, EntryCounts, Hdr, Lookup, SectionKind, SectionTable};
use unspool_elf::{ElfFile, GoFunctions, ModuleError, Section};
use unspool_rows::{Fde, Table, Vaddr};
use unspool_synthesis::go_functions;

/// Which section a table is read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TableSource {
    /// `.eh_frame`, and the entries of `.debug_frame` for code that it does not cover. Else
    /// `.sframe`, else ORC. Go's functions have rows by their own table
    /// ([`synthesize`](crate::synthesize)): entries of `.debug_frame` do not count there.
    #[default]
    Auto,
    /// The first that has entries, alone: `.eh_frame`, `.debug_frame`, `.sframe`, ORC.
    First,
    /// `.eh_frame`.
    EhFrame,
    /// `.debug_frame`.
    DebugFrame,
    /// `.sframe`. In its rows all registers except the stack and frame pointer are unknown in the
    /// caller.
    Sframe,
    /// ORC, the Linux kernel's own table (`.orc_unwind`). The same registers are unknown, except in
    /// frames with all registers.
    Orc,
}

impl TableSource {
    /// Whether any kind of section will do.
    fn is_any(self) -> bool {
        matches!(self, TableSource::Auto | TableSource::First)
    }
}

/// A section that a table was read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceSection {
    /// The name in the file; empty if the file has no section headers.
    pub name: String,
    /// The number of bytes, decompressed.
    pub size: u64,
    /// The entries of the table that were read from it, by their indices. Sections of SFrame or ORC
    /// make entries together: the last has all.
    pub entries: Range<usize>,
}

/// What is wrong with an entry, and its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableProblem {
    /// Of call frame information.
    #[error(transparent)]
    Cfi(#[from] CfiProblem),
    /// Of SFrame.
    #[error(transparent)]
    Sframe(#[from] SframeProblem),
    /// Of ORC.
    #[error(transparent)]
    Orc(#[from] OrcProblem),
}

/// A table that was read.
#[derive(Debug, Clone)]
pub struct SourceTable {
    /// The rows.
    pub table: Table,
    /// Entries that could not be read.
    pub problems: Vec<TableProblem>,
    /// Counts.
    pub counts: EntryCounts,
    /// The sections that were read.
    pub sections: Vec<SourceSection>,
    /// Bytes of the section's `.eh_frame_hdr`; 0 without one.
    pub hdr_size: u64,
}

impl fmt::Display for SourceSection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} entries", self.name, self.entries.len())
    }
}

impl SourceTable {
    /// The section of an entry of the table.
    #[must_use]
    pub fn section(&self, fde: &Fde) -> Option<&SourceSection> {
        let is_its = |section: &&SourceSection| {
            let entries = self.table.fdes().get(section.entries.clone());
            entries.is_some_and(|entries| entries.as_ptr_range().contains(&ptr::from_ref(fde)))
        };
        self.sections.iter().find(is_its)
    }
}

/// Why a file has no table to read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The file cannot be read.
    #[error(transparent)]
    Module(#[from] ModuleError),
    /// The file has no such section.
    #[error(
        "{file}: no {wanted}{}",
        if *.has_arm_exception_index { "; its ARM exception index (.ARM.exidx) is not read" } else { "" }
    )]
    Missing {
        /// The file.
        file: String,
        /// The wanted section.
        wanted: &'static str,
        /// Whether it has the exception index that most ARM files have instead.
        has_arm_exception_index: bool,
    },
    /// Its ORC table has an unknown layout.
    #[error("{file}: its ORC table has a layout that is not known (.orc_header is {header})")]
    OrcVersion {
        /// The file.
        file: String,
        /// The hash in its header; empty if it has none.
        header: String,
    },
}

/// Reads the unwind table of a file. Bad entries are reported beside the others.
///
/// # Errors
///
/// The file has no such section, or its bytes cannot be read.
pub fn read(file: &ElfFile, source: TableSource) -> Result<SourceTable, SourceError> {
    if source == TableSource::Orc {
        return read_orc(file);
    }
    let first = match source {
        TableSource::Sframe => Err(missing(file, SFRAME)),
        _ => sections(file, source).map(|found| read_found(file, &found, source)),
    };
    let has_entries = |table: &SourceTable| table.counts.fdes > 0 || !table.problems.is_empty();
    match first {
        Ok(reading) if !source.is_any() || has_entries(&reading) => Ok(reading),
        Err(SourceError::Missing { .. }) | Ok(_)
            if source.is_any() || source == TableSource::Sframe =>
        {
            match read_sframe(file)? {
                Some(sframe) => Ok(sframe),
                None if source.is_any() && file.orc()?.is_some() => read_orc(file),
                None => first,
            }
        }
        other => other,
    }
}

/// The name in the error if there is no SFrame.
const SFRAME: &str = ".sframe";

/// Whether there is a table, without reading it.
///
/// # Errors
///
/// The file has no such section, or its bytes cannot be read.
pub(crate) fn check_exists(file: &ElfFile, source: TableSource) -> Result<(), SourceError> {
    let is_sframe =
        (source.is_any() || source == TableSource::Sframe) && !file.sframes()?.is_empty();
    match source {
        _ if is_sframe => Ok(()),
        TableSource::Sframe => Err(missing(file, SFRAME)),
        TableSource::Orc => orc(file).map(drop),
        _ => sections(file, source).map(drop),
    }
}

/// The ORC table of a file.
fn read_orc(file: &ElfFile) -> Result<SourceTable, SourceError> {
    let (orc, mut sections) = orc(file)?;
    let functions = file.symbols().iter().filter(|symbol| symbol.is_function);
    let mut starts: Vec<Vaddr> = functions.map(|symbol| symbol.address).collect();
    starts.sort_unstable();
    let (table, problems) = orc.table(&starts);
    if let Some(last) = sections.last_mut() {
        last.entries = 0..table.fdes().len();
    }
    Ok(SourceTable {
        counts: EntryCounts {
            cies: 0,
            fdes: u32::try_from(table.fdes().len()).unwrap_or(u32::MAX),
            empty_fdes: 0,
        },
        table,
        problems: problems.into_iter().map(TableProblem::Orc).collect(),
        sections,
        hdr_size: 0,
    })
}

/// The ORC sections of a file, and what they are called.
fn orc(file: &ElfFile) -> Result<(OrcSections<'_>, Vec<SourceSection>), SourceError> {
    let found = file.orc()?.filter(|_| file.abi() == orc::ABI);
    let found = found.ok_or_else(|| missing(file, "ORC table of x86-64 (.orc_unwind)"))?;
    let [addresses, entries, header] = found;
    let release = file.kernel_release();
    let version = match header.data {
        [] => release.map(|(major, minor)| OrcVersion::from_release(major, minor)),
        hash => OrcVersion::from_header(hash),
    };
    let version = version.ok_or_else(|| SourceError::OrcVersion {
        file: file.path().to_string_lossy().into_owned(),
        header: header
            .data
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect(),
    })?;
    let sections = vec![origin(&addresses), origin(&entries)];
    let orc = OrcSections {
        addresses: addresses.data,
        start: addresses.address,
        entries: entries.data,
        version,
        adds_after_load: release
            .is_none_or(|(major, minor)| OrcSections::adds_after_load(major, minor)),
    };
    Ok((orc, sections))
}

/// The SFrame sections of a file, if any.
fn read_sframe(file: &ElfFile) -> Result<Option<SourceTable>, ModuleError> {
    let Some(machine) = SframeAbi::from_abi(file.abi()) else {
        return Ok(None);
    };
    let found = file.sframes()?;
    if found.is_empty() {
        return Ok(None);
    }
    let (mut functions, mut problems) = (Vec::new(), Vec::new());
    for section in &found {
        let read = sframe::read(section.data, section.address, machine);
        functions.extend(read.functions);
        problems.extend(read.problems);
    }
    let (table, others) = sframe::table(&functions, machine);
    problems.extend(others);
    let mut sections: Vec<SourceSection> = found.iter().map(origin).collect();
    if let Some(last) = sections.last_mut() {
        last.entries = 0..table.fdes().len();
    }
    let count = |fdes: usize| u32::try_from(fdes).unwrap_or(u32::MAX);
    let is_empty = |fde: &&Fde| fde.start == fde.end;
    Ok(Some(SourceTable {
        counts: EntryCounts {
            cies: 0,
            fdes: count(table.fdes().len()),
            empty_fdes: count(table.fdes().iter().filter(is_empty).count()),
        },
        table,
        problems: problems.into_iter().map(TableProblem::Sframe).collect(),
        sections,
        hdr_size: 0,
    }))
}

/// A section without entries of its own.
fn origin(section: &Section<'_>) -> SourceSection {
    SourceSection {
        name: section.name.clone().into_owned(),
        size: section.data.len() as u64,
        entries: 0..0,
    }
}

/// The rows of a file; an empty table if it has none.
///
/// # Errors
///
/// The file's bytes cannot be read.
pub fn read_if_any(file: &ElfFile) -> Result<Table, SourceError> {
    read_if_any_from(file, TableSource::Auto)
}

/// The rows of one kind of section; an empty table if there is none.
///
/// # Errors
///
/// The file's bytes cannot be read.
pub fn read_if_any_from(file: &ElfFile, source: TableSource) -> Result<Table, SourceError> {
    match read(file, source) {
        Ok(reading) => Ok(reading.table),
        Err(SourceError::Missing { .. }) => Ok(Table::new(file.abi())),
        Err(error) => Err(error),
    }
}

/// The sections of call frame information with a file's unwind table, and their names: one, or
/// several in a relocatable file.
///
/// # Errors
///
/// The file has none, or its bytes cannot be read. SFrame never has any.
pub fn sections(file: &ElfFile, source: TableSource) -> Result<Vec<NamedSection<'_>>, SourceError> {
    let (kinds, wanted): (&[SectionKind], _) = match source {
        TableSource::Auto | TableSource::First => (
            &[SectionKind::EhFrame, SectionKind::DebugFrame],
            "unwind table (.eh_frame, .debug_frame or .sframe)",
        ),
        TableSource::EhFrame => (&[SectionKind::EhFrame], ".eh_frame"),
        TableSource::DebugFrame => (&[SectionKind::DebugFrame], ".debug_frame"),
        TableSource::Sframe | TableSource::Orc => (
            &[],
            "call frame information: .sframe and ORC have rows, and no instructions",
        ),
    };
    let (mut all, mut empty) = (Vec::new(), None);
    for kind in kinds {
        let found = sections_of_kind(file, *kind)?;
        let has_entries = |(section, _): &NamedSection<'_>| section.entries().next().is_some();
        if found.iter().any(has_entries) {
            all.extend(found);
            if source != TableSource::Auto {
                break;
            }
        } else if !found.is_empty() {
            empty.get_or_insert(found);
        }
    }
    let found = Some(all).filter(|all| !all.is_empty()).or(empty);
    found.ok_or_else(|| missing(file, wanted))
}

/// Whether the table is in two sections, so that no [`section_lookup`] knows all of it.
#[must_use]
pub fn is_in_two_sections(file: &ElfFile) -> bool {
    let has = |name| file.sections().any(|section| section.name == name);
    has(".debug_frame") && has(".eh_frame")
}

fn missing(file: &ElfFile, wanted: &'static str) -> SourceError {
    SourceError::Missing {
        file: file.path().to_string_lossy().into_owned(),
        wanted,
        has_arm_exception_index: file.has_arm_exception_index(),
    }
}

/// A section in the reader's form, and its name.
pub type NamedSection<'a> = (CfiSection<'a>, String);

fn sections_of_kind(
    file: &ElfFile,
    kind: SectionKind,
) -> Result<Vec<NamedSection<'_>>, ModuleError> {
    let found = match kind {
        SectionKind::EhFrame => file.eh_frames()?,
        SectionKind::DebugFrame => file.debug_frames()?,
    };
    Ok(found
        .into_iter()
        .map(|section| {
            let name = section.name.clone().into_owned();
            (as_cfi(file, kind, section.data, section.address), name)
        })
        .collect())
}

fn as_cfi<'a>(file: &ElfFile, kind: SectionKind, data: &'a [u8], address: Vaddr) -> CfiSection<'a> {
    CfiSection {
        kind,
        data,
        address,
        text_base: file.text_base(),
        data_base: file.data_base(),
        abi: file.abi(),
    }
}

fn read_found(file: &ElfFile, found: &[NamedSection<'_>], source: TableSource) -> SourceTable {
    let mut read = SectionTable::new(file.abi());
    let mut sections: Vec<SourceSection> = Vec::new();
    let mut taken = None;
    for (section, name) in found {
        let first = read.table.fdes().len();
        if source == TableSource::Auto && section.kind == SectionKind::DebugFrame {
            let taken = taken.get_or_insert_with(|| ranges_with_rows(file, &read.table));
            read.add(section, |range| !overlaps(taken, range));
        } else {
            read.add(section, |_| true);
        }
        sections.push(SourceSection {
            name: name.to_owned(),
            size: section.data.len() as u64,
            entries: first..read.table.fdes().len(),
        });
    }
    read.table.shrink_to_fit();
    let mut eh_frames = found
        .iter()
        .filter(|(section, _)| section.kind == SectionKind::EhFrame);
    let is_searched = eh_frames.next().is_some() && eh_frames.next().is_none();
    let hdr = file.eh_frame_hdr().ok().flatten().filter(|_| is_searched);
    SourceTable {
        table: read.table,
        problems: read.problems.into_iter().map(TableProblem::Cfi).collect(),
        counts: read.counts,
        sections,
        hdr_size: hdr.map_or(0, |hdr| hdr.data.len() as u64),
    }
}

/// The ranges of addresses that need no entry of `.debug_frame`: those that a table has, and Go's
/// functions. Ascending and disjoint.
fn ranges_with_rows(file: &ElfFile, table: &Table) -> Vec<Range<Vaddr>> {
    let entries = table.fdes().iter().map(|fde| fde.start..fde.end);
    let go = go_functions(file).into_iter().flat_map(GoFunctions::iter);
    let mut all: Vec<_> = entries.chain(go.map(|function| function.range)).collect();
    all.retain(|range| range.start < range.end);
    all.sort_unstable_by_key(|range| range.start);
    all.dedup_by(|next, last| {
        let is_joined = next.start <= last.end;
        if is_joined {
            last.end = last.end.max(next.end);
        }
        is_joined
    });
    all
}

/// Whether a range shares addresses with one of these. They ascend and are disjoint.
fn overlaps(ranges: &[Range<Vaddr>], range: &Range<Vaddr>) -> bool {
    let after = ranges.partition_point(|other| other.end <= range.start);
    ranges
        .get(after)
        .is_some_and(|other| other.start < range.end)
}

/// Whether `.eh_frame_hdr` lists exactly the entries that were read and are not empty, ascending
/// and without overlaps, so that a search finds the right one. `None` without `.eh_frame_hdr`, or
/// if the entries are not from `.eh_frame`.
#[must_use]
pub fn hdr_is_complete(file: &ElfFile, table: &SourceTable) -> Option<bool> {
    if table.hdr_size == 0 {
        return None;
    }
    let own = table.sections.first()?;
    let found = file.eh_frame_hdr().ok()??;
    let sections = sections_of_kind(file, SectionKind::EhFrame).ok()?;
    let (section, _) = sections.first()?;
    let Ok(hdr) = Hdr::parse(found.data, found.address, file.abi()) else {
        return Some(false);
    };
    let covers = |fde: &&Fde| fde.start < fde.end;
    let bounds = |fde: &Fde| (fde.start, fde.end, fde.origin);
    let mut entries: Vec<_> = table
        .table
        .fdes()
        .get(own.entries.clone())?
        .iter()
        .filter(covers)
        .map(bounds)
        .collect();
    entries.sort();
    let is_listed = |(index, (start, _, origin)): (u64, &(Vaddr, Vaddr, u64))| {
        let at = section.address.offset(*origin);
        hdr.entry(index)
            .is_ok_and(|entry| (entry.start, entry.fde) == (*start, at))
    };
    let is_complete = hdr.count == entries.len() as u64
        && (0..).zip(&entries).all(is_listed)
        && entries.is_sorted_by(|(_, end, _), (start, _, _)| end <= start);
    Some(is_complete)
}

/// Looks up single addresses in the file's own section, for use until there is a compiled table.
/// `.eh_frame_hdr` is not checked first, which would take as long as reading the section
/// ([`hdr_is_complete`]). `trust` decides about addresses that it does not list.
#[must_use]
pub fn section_lookup(file: &ElfFile, trust: HdrTrust) -> Option<Lookup<'_>> {
    if let Some((section, _)) = sections_of_kind(file, SectionKind::EhFrame)
        .ok()?
        .into_iter()
        .next()
    {
        let hdr = file.eh_frame_hdr().ok().flatten();
        let hdr = hdr.and_then(|hdr| Hdr::parse(hdr.data, hdr.address, file.abi()).ok());
        return Some(Lookup::new(section, hdr, trust));
    }
    if go_functions(file).is_some() {
        return None;
    }
    let (section, _) = sections_of_kind(file, SectionKind::DebugFrame)
        .ok()?
        .into_iter()
        .next()?;
    Some(Lookup::new(section, None, HdrTrust::Suspect))
}
