//! The places where the files of split units can be (`-gsplit-dwarf`).

use std::path::{Path, PathBuf};

use gimli::{AttributeValue, Dwarf, UnitHeader, UnitType};

use super::{DwarfSlice, check_tables, path_of, section};
use crate::elf::ElfFile;

/// The paths of the `.dwo` files that a file's debug information names: where the compiler wrote
/// them, and in some folders. Empty if no unit is split, or the information cannot be read.
pub(crate) fn split_paths(file: &ElfFile, folders: &[&Path]) -> Vec<PathBuf> {
    // Split units have the addresses of their code in a section of the linked file.
    if file.indices_named(".debug_addr").next().is_none() {
        return Vec::new();
    }
    let Ok(dwarf) = Dwarf::load(|id| section(file, id, Some(id.name()))) else {
        return Vec::new();
    };
    if check_tables(file, &dwarf).is_err() {
        return Vec::new();
    }
    let mut paths = Vec::new();
    let mut units = dwarf.units();
    while let Ok(Some(header)) = units.next() {
        // Before DWARF 5, headers do not say it.
        let is_whole = header.version() >= 5 && !matches!(header.type_(), UnitType::Skeleton(_));
        if let Some(path) = (!is_whole).then(|| path(&dwarf, header)).flatten() {
            let name = path.file_name().map(Path::new).unwrap_or(&path);
            paths.extend(folders.iter().map(|folder| folder.join(name)));
            paths.push(path);
        }
    }
    paths
}

/// The path of a unit's file, as the compiler wrote it.
fn path(dwarf: &Dwarf<DwarfSlice<'_>>, header: UnitHeader<DwarfSlice<'_>>) -> Option<PathBuf> {
    let unit = dwarf.unit(header).ok()?;
    let name: AttributeValue<_> = unit.dwo_name().ok()??;
    let name = path_of(&dwarf.attr_string(&unit, name).ok()?);
    let folder = unit.comp_dir.as_ref().map(path_of);
    Some(folder.unwrap_or_default().join(name))
}
