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
    let mut ranges = of_units(file).unwrap_or_default();
    ranges.sort_by_key(|range| (range.start, range.end));
    ranges
}

fn of_units(file: &ElfFile) -> Option<Vec<Range<Vaddr>>> {
    if !file.sections().any(|section| section.name == ".debug_line") {
        return None;
    }
    let dwarf = Dwarf::load(|id| section(file, id, Some(id.name()))).ok()?;
    check_tables(file, &dwarf).ok()?;
    let mut found = Vec::new();
    let mut units = dwarf.units();
    while let Ok(Some(header)) = units.next() {
        // An unreadable unit has no ranges.
        found.extend(of_unit(&dwarf, header).unwrap_or_default());
    }
    Some(found)
}

/// The ranges of a unit, if its language is assembly.
fn of_unit(
    dwarf: &Dwarf<DwarfSlice<'_>>,
    header: UnitHeader<DwarfSlice<'_>>,
) -> Option<Vec<Range<Vaddr>>> {
    let abbreviations = header.abbreviations(&dwarf.debug_abbrev).ok()?;
    let mut entries = header.entries(&abbreviations);
    let root = entries.next_dfs().ok()??;
    let value = root.attr_value(gimli::DW_AT_language)?;
    let gimli::AttributeValue::Language(language) = value else {
        return None;
    };
    if ![gimli::DW_LANG_Mips_Assembler, DW_LANG_ASSEMBLY].contains(&language) {
        return None;
    }
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
