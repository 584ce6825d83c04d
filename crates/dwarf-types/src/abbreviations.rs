//! Checking that the tables of abbreviations can be read in linear time.

use std::collections::BTreeSet;

use gimli::{Reader as _, Section as _};

use crate::error::TypesError;
use crate::index::{Dwarf, DwarfReader};

/// Checks that reading the abbreviations of all units takes time linear in the size of the section.
/// Each unit names the offset of its table, and a zero ends the table. So units of a hostile file
/// can name every offset in one long table.
pub(crate) fn check(dwarf: &Dwarf<'_>) -> Result<(), TypesError> {
    let section = *dwarf.debug_abbrev.reader();
    let limit = section.len().saturating_mul(4).saturating_add(1 << 20);
    let mut offsets = BTreeSet::new();
    let mut units = dwarf.units();
    while let Ok(Some(unit)) = units.next() {
        offsets.insert(unit.debug_abbrev_offset().0);
    }
    let mut units = dwarf.type_units();
    while let Ok(Some(unit)) = units.next() {
        offsets.insert(unit.debug_abbrev_offset().0);
    }
    let mut read = 0usize;
    for offset in offsets {
        let mut table = section;
        if table.skip(offset).is_ok() {
            let before = table.len();
            // A broken table is reported when its unit is read.
            let _ = pass_over(&mut table);
            read = read.saturating_add(before - table.len());
        }
        if read > limit {
            return Err(TypesError::Abbreviations {
                limit: limit as u64,
            });
        }
    }
    Ok(())
}

/// Skips one table (DWARF 5 §7.5.3).
fn pass_over(table: &mut DwarfReader<'_>) -> gimli::Result<()> {
    const IMPLICIT_CONST: u64 = gimli::DW_FORM_implicit_const.0 as u64;
    while table.read_uleb128()? != 0 {
        table.read_uleb128()?; // the tag
        table.read_u8()?; // whether there are children
        loop {
            match (table.read_uleb128()?, table.read_uleb128()?) {
                (0, 0) => break,
                (_, IMPLICIT_CONST) => {
                    table.read_sleb128()?;
                }
                _ => {}
            }
        }
    }
    Ok(())
}
