//! Code that was written in assembly, by the units of the debug information (DWARF 5 §3.1.1).

use core::ops::Range;

use gimli::{DwLang, Dwarf, UnitHeader};
use unspool_rows::Vaddr;

use super::{DwarfSlice, check_tables, section};
use crate::elf::ElfFile;

/// The ranges of assembly code by the file's own debug information, ascending. Empty if it has
/// none, or none that can be read.
#[must_use]
pub fn assembly_ranges(file: &ElfFile) -> Vec<Range<Vaddr>> {
    let mut ranges = Vec::new();
    visit_units(file, |dwarf, header, is_assembly| {
        if is_assembly {
            // An unreadable unit has no ranges.
            ranges.extend(ranges_of(dwarf, header).unwrap_or_default());
        }
    });
    ranges.sort_by_key(|range| (range.start, range.end));
    ranges
}

/// Whether the file's own debug information has code of a compiler.
#[must_use]
pub fn has_compiled_units(file: &ElfFile) -> bool {
    let mut is_any = false;
    visit_units(file, |_, _, is_assembly| is_any |= !is_assembly);
    is_any
}

/// Visits the units that name a language, with whether it is assembly.
fn visit_units(
    file: &ElfFile,
    mut visit: impl FnMut(&Dwarf<DwarfSlice<'_>>, UnitHeader<DwarfSlice<'_>>, bool),
) -> Option<()> {
    if !file.sections().any(|section| section.name == ".debug_line") {
        return None;
    }
    let dwarf = Dwarf::load(|id| section(file, id, Some(id.name()))).ok()?;
    check_tables(file, &dwarf).ok()?;
    let mut units = dwarf.units();
    while let Ok(Some(header)) = units.next() {
        if let Some(language) = language_of(&dwarf, &header) {
            let is_assembly = [gimli::DW_LANG_Mips_Assembler, DW_LANG_ASSEMBLY].contains(&language);
            visit(&dwarf, header, is_assembly);
        }
    }
    Some(())
}

/// The language of a unit.
fn language_of(
    dwarf: &Dwarf<DwarfSlice<'_>>,
    header: &UnitHeader<DwarfSlice<'_>>,
) -> Option<DwLang> {
    let abbreviations = header.abbreviations(&dwarf.debug_abbrev).ok()?;
    let mut entries = header.entries(&abbreviations);
    let root = entries.next_dfs().ok()??;
    match root.attr_value(gimli::DW_AT_language)? {
        gimli::AttributeValue::Language(language) => Some(language),
        _ => None,
    }
}

/// The ranges of a unit.
fn ranges_of(
    dwarf: &Dwarf<DwarfSlice<'_>>,
    header: UnitHeader<DwarfSlice<'_>>,
) -> Option<Vec<Range<Vaddr>>> {
    let unit = dwarf.unit(header).ok()?;
    let mut ranges = dwarf.unit_ranges(&unit).ok()?;
    let mut found = Vec::new();
    while let Ok(Some(range)) = ranges.next() {
        if range.begin < range.end {
            found.push(Vaddr(range.begin)..Vaddr(range.end));
        }
    }
    Some(found)
}

/// DWARF's number for assembly, assigned after version 5 was published.
const DW_LANG_ASSEMBLY: DwLang = DwLang(0x31);
