//! The compilation units that a few addresses are in, by `.debug_aranges` (DWARF 5 §6.1.2).
//!
//! To find the unit of an address, addr2line reads the abbreviations, the first entry and the line
//! program header of every unit. In a library of thousands of units this dominates a look-up. If
//! `.debug_aranges` names the units, the others need not be read.

use std::collections::BTreeSet;
use std::sync::Arc;

use gimli::{
    AbbreviationsCache, DebugAbbrev, DebugAbbrevOffset, DebugInfoOffset, Dwarf, EndianSlice,
    Reader as _, Section as _,
};
use unspool_rows::Vaddr;

use super::DwarfSlice;

/// Abbreviations with which addr2line skips all units of `dwarf` except those of `addresses`: it
/// skips units that it cannot read.
///
/// `None` if all units are needed: the section does not name one for each address, or the named
/// units refer to others.
pub(super) fn abbreviations(
    dwarf: &Dwarf<DwarfSlice<'_>>,
    addresses: &[Vaddr],
) -> Option<AbbreviationsCache> {
    let wanted = units(dwarf, addresses)?;
    let (mut inside, mut outside) = (BTreeSet::new(), BTreeSet::new());
    let mut units = dwarf.units();
    while let Some(unit) = units.next().ok()? {
        let within = wanted.contains(&unit.debug_info_offset()?);
        let tables = if within { &mut inside } else { &mut outside };
        tables.insert(unit.debug_abbrev_offset().0);
    }
    let mut tables = AbbreviationTables::new(&dwarf.debug_abbrev);
    if inside.iter().any(|table| tables.refers_to_units(*table)) {
        return None;
    }
    let none = EndianSlice::new(&[0], tables.section.endian());
    let none = DebugAbbrev::from(none).abbreviations(DebugAbbrevOffset(0));
    let none = Arc::new(none.ok()?);
    let mut cache = AbbreviationsCache::new();
    for table in outside.difference(&inside) {
        cache.set::<DwarfSlice<'_>>(DebugAbbrevOffset(*table), Arc::clone(&none));
    }
    Some(cache)
}

/// The units of `addresses`, if the section names one for each.
fn units(dwarf: &Dwarf<DwarfSlice<'_>>, addresses: &[Vaddr]) -> Option<BTreeSet<DebugInfoOffset>> {
    let addresses: BTreeSet<u64> = addresses.iter().map(|addr| addr.0).collect();
    let mut units = BTreeSet::new();
    let mut missing = addresses.clone();
    let mut sets = dwarf.debug_aranges.headers();
    while let Some(set) = sets.next().ok()? {
        let mut entries = set.entries();
        while let Some(entry) = entries.next().ok()? {
            let (begin, end) = (entry.range().begin, entry.range().end);
            let range = begin..end.max(begin);
            if addresses.range(range.clone()).next().is_some() {
                units.insert(set.debug_info_offset());
            }
            // Each address is found once, even if several ranges contain it.
            while let Some(addr) = missing.range(range.clone()).next().copied() {
                missing.remove(&addr);
            }
        }
    }
    (!addresses.is_empty() && missing.is_empty()).then_some(units)
}

/// Checks that reading the abbreviations of all units takes time linear in the size of the section.
///
/// Each unit names the offset of its table, and a zero ends the table. So the units of a hostile
/// file can name every offset in one long table. A linker puts tables one behind another.
///
/// # Errors
///
/// The maximum total size of the tables in bytes, if they are larger.
pub(super) fn check_tables(dwarf: &Dwarf<DwarfSlice<'_>>) -> Result<(), usize> {
    let mut offsets = BTreeSet::new();
    let mut units = dwarf.units();
    while let Ok(Some(unit)) = units.next() {
        offsets.insert(unit.debug_abbrev_offset().0);
    }
    let mut tables = AbbreviationTables::new(&dwarf.debug_abbrev);
    let most = tables.left;
    for offset in offsets {
        tables.refers_to_units(offset);
        if tables.left == 0 {
            return Err(most);
        }
    }
    Ok(())
}

/// The tables of a section, while their total size is possible for tables that do not overlap.
struct AbbreviationTables<'a> {
    section: DwarfSlice<'a>,
    left: usize,
}

impl<'a> AbbreviationTables<'a> {
    fn new(section: &DebugAbbrev<DwarfSlice<'a>>) -> Self {
        let section = *section.reader();
        AbbreviationTables {
            section,
            left: section.len().saturating_mul(4).saturating_add(1 << 20),
        }
    }

    /// Whether entries with these abbreviations can refer to entries of other units. Unreadable
    /// abbreviations count as if they could.
    fn refers_to_units(&mut self, table: usize) -> bool {
        let mut rest = self.section;
        if self.left == 0 || rest.skip(table).is_err() {
            return true;
        }
        let before = rest.len();
        let refers = any_reference(&mut rest);
        self.left = self.left.saturating_sub(before - rest.len());
        refers.unwrap_or(true)
    }
}

/// Whether an attribute of the table at the start of `rest` can have the form `DW_FORM_ref_addr`
/// (DWARF 5 §7.5.3). With `DW_FORM_indirect` the entry has the form. Reads the table to its end.
fn any_reference(rest: &mut DwarfSlice<'_>) -> gimli::Result<bool> {
    const IMPLICIT_CONST: u64 = gimli::DW_FORM_implicit_const.0 as u64;
    const REF_ADDR: u64 = gimli::DW_FORM_ref_addr.0 as u64;
    const INDIRECT: u64 = gimli::DW_FORM_indirect.0 as u64;
    let mut found = false;
    while rest.read_uleb128()? != 0 {
        rest.read_uleb128()?; // the tag
        rest.read_u8()?; // whether there are children
        loop {
            match (rest.read_uleb128()?, rest.read_uleb128()?) {
                (0, 0) => break,
                (_, REF_ADDR | INDIRECT) => found = true,
                (_, IMPLICIT_CONST) => {
                    rest.read_sleb128()?;
                }
                _ => {}
            }
        }
    }
    Ok(found)
}
