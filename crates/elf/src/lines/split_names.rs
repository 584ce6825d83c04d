//! The places where the files of split units can be (`-gsplit-dwarf`).

use std::path::{Path, PathBuf};

use gimli::{AttributeValue, Dwarf, SectionId, UnitHeader, UnitType};

use super::{DwarfSlice, check_tables, path_of, section};
use crate::elf::ElfFile;

/// The limit of split units whose files are looked for. Chromium has some 40,000.
const MAX_SPLIT_UNITS: usize = 1 << 16;
/// `PATH_MAX` of Linux.
const MAX_PATH_BYTES: usize = 4096;

/// The paths of the `.dwo` files that a file's debug information names: where the compiler wrote
/// them, and in some folders. Empty if no unit is split, or the information cannot be read.
pub(crate) fn split_paths(file: &ElfFile, folders: &[&Path]) -> Vec<PathBuf> {
    // Split units have the addresses of their code in a section of the linked file.
    if file.indices_named(".debug_addr").next().is_none() {
        return Vec::new();
    }
    // The units' headers are enough for most files.
    let units_of =
        |id: SectionId| section(file, id, (id == SectionId::DebugInfo).then(|| id.name()));
    let is_split = Dwarf::load(units_of).is_ok_and(|dwarf| skeletons(&dwarf).next().is_some());
    if !is_split {
        return Vec::new();
    }
    let Ok(dwarf) = Dwarf::load(|id| section(file, id, Some(id.name()))) else {
        return Vec::new();
    };
    if check_tables(file, &dwarf).is_err() {
        return Vec::new();
    }
    let mut paths = Vec::new();
    for path in skeletons(&dwarf)
        .take(MAX_SPLIT_UNITS)
        .filter_map(|header| path(&dwarf, header))
    {
        let name = path.file_name().map(Path::new).unwrap_or(&path);
        paths.extend(folders.iter().map(|folder| folder.join(name)));
        paths.push(path);
    }
    paths
}

/// The units that may be split: before DWARF 5, headers do not say it.
fn skeletons<'d, 'a>(
    dwarf: &'d Dwarf<DwarfSlice<'a>>,
) -> impl Iterator<Item = UnitHeader<DwarfSlice<'a>>> + 'd {
    let mut units = dwarf.units();
    let all = std::iter::from_fn(move || units.next().ok()?);
    all.filter(|header| header.version() < 5 || matches!(header.type_(), UnitType::Skeleton(_)))
}

/// The path of a unit's file, as the compiler wrote it.
fn path(dwarf: &Dwarf<DwarfSlice<'_>>, header: UnitHeader<DwarfSlice<'_>>) -> Option<PathBuf> {
    let unit = dwarf.unit(header).ok()?;
    let name: AttributeValue<_> = unit.dwo_name().ok()??;
    let name = path_of(&dwarf.attr_string(&unit, name).ok()?);
    let folder = unit.comp_dir.as_ref().map(path_of);
    let path = folder.unwrap_or_default().join(name);
    (path.as_os_str().len() <= MAX_PATH_BYTES).then_some(path)
}
