//! The compilation units that a few addresses are in, by `.debug_aranges` (DWARF 5 §6.1.2).
//!
//! To find the unit of an address, addr2line reads the abbreviations, the first entry and the
//! head of the line program of every unit: in a library of thousands of units, most of the time
//! that a look-up takes. Where `.debug_aranges` tells the units, the others need not be read.

use std::collections::BTreeSet;
use std::sync::Arc;

use gimli::{
    AbbreviationsCache, DebugAbbrev, DebugAbbrevOffset, DebugInfoOffset, Dwarf, EndianSlice,
    Reader as _, Section as _,
};
use unspool_ir::Vaddr;

use super::Slice;

/// Abbreviations with which addr2line passes over the units of `dwarf` that are not those of
/// `addresses`: it leaves out units that it cannot read.
///
/// `None` if all units are needed: the section does not name one for each address, or those of
/// the addresses refer to others.
pub(super) fn abbreviations(
    dwarf: &Dwarf<Slice<'_>>,
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
    let section = *dwarf.debug_abbrev.reader();
    if inside.iter().any(|table| refers_to_units(section, *table)) {
        return None;
    }
    let none = EndianSlice::new(&[0], section.endian());
    let none = DebugAbbrev::from(none).abbreviations(DebugAbbrevOffset(0));
    let none = Arc::new(none.ok()?);
    let mut cache = AbbreviationsCache::new();
    for table in outside.difference(&inside) {
        cache.set::<Slice<'_>>(DebugAbbrevOffset(*table), Arc::clone(&none));
    }
    Some(cache)
}

/// The units of `addresses`, if the section tells one for each.
fn units(dwarf: &Dwarf<Slice<'_>>, addresses: &[Vaddr]) -> Option<BTreeSet<DebugInfoOffset>> {
    let addresses: BTreeSet<u64> = addresses.iter().map(|addr| addr.0).collect();
    let mut units = BTreeSet::new();
    let mut found: BTreeSet<u64> = BTreeSet::new();
    let mut sets = dwarf.debug_aranges.headers();
    while let Some(set) = sets.next().ok()? {
        let mut entries = set.entries();
        while let Some(entry) = entries.next().ok()? {
            let (begin, end) = (entry.range().begin, entry.range().end);
            let inside = addresses.range(begin..end.max(begin));
            if inside.clone().next().is_some() {
                units.insert(set.debug_info_offset());
                found.extend(inside.copied());
            }
        }
    }
    (!found.is_empty() && found.len() == addresses.len()).then_some(units)
}

/// Whether entries with these abbreviations can refer to entries of other units. Abbreviations
/// that cannot be read can do anything.
fn refers_to_units(section: Slice<'_>, table: usize) -> bool {
    let mut rest = section;
    let refers = rest.skip(table).and_then(|()| any_ref_addr(rest));
    refers.unwrap_or(true)
}

/// Whether an attribute of the table at the start of `rest` has the form `DW_FORM_ref_addr`
/// (DWARF 5 §7.5.3).
fn any_ref_addr(mut rest: Slice<'_>) -> gimli::Result<bool> {
    const IMPLICIT_CONST: u64 = gimli::DW_FORM_implicit_const.0 as u64;
    const REF_ADDR: u64 = gimli::DW_FORM_ref_addr.0 as u64;
    while rest.read_uleb128()? != 0 {
        rest.read_uleb128()?; // the tag
        rest.read_u8()?; // whether there are children
        loop {
            match (rest.read_uleb128()?, rest.read_uleb128()?) {
                (0, 0) => break,
                (_, REF_ADDR) => return Ok(true),
                (_, IMPLICIT_CONST) => {
                    rest.read_sleb128()?;
                }
                _ => {}
            }
        }
    }
    Ok(false)
}
