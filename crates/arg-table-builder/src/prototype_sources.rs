//! Sources of prototypes: the DWARF and the CTF of files.

use std::cell::LazyCell;

use unspool_c_types::{CtfError, CtfSection, CtfUnit, reverse_arrays};
use unspool_dwarf_types::{ArrayOrder, Producers, TypesError, convention, elf_context};
use unspool_elf::{DebugFiles, ElfFile};

use crate::prototype::Prototypes;

/// Why functions of a file have no prototypes, although it has types of them.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum MissingPrototypes {
    /// A unit's split part is missing (`-gsplit-dwarf`).
    #[error(transparent)]
    SplitUnit(TypesError),
    /// The file's strings or symbols changed after CTF was written that depends on them.
    #[error(transparent)]
    StaleCtf(CtfError),
}

/// The prototypes of a file's functions: from its DWARF or its debug files', and from the `.ctf` of
/// any of these. Other unreadable data is ignored.
#[must_use]
pub(crate) fn prototypes(
    file: &ElfFile,
    debug: &DebugFiles,
) -> (Prototypes, Vec<MissingPrototypes>) {
    let mut prototypes = Prototypes::default();
    let mut missing = Vec::new();
    for one in [file].into_iter().chain(debug.debug.as_deref()) {
        missing.extend(add_ctf(one, debug, &mut prototypes));
    }
    let dwarf = unspool_dwarf_types::DwarfPrototypes::read(file, debug).unwrap_or_default();
    if let Some(convention) = convention(file.abi().arch) {
        for (graph, functions) in dwarf.units() {
            let functions = functions.into_iter().map(|(address, ty)| (address.0, ty));
            prototypes.add_at(graph, functions, convention);
        }
    }
    let units = dwarf.missing().iter().cloned();
    missing.extend(units.map(MissingPrototypes::SplitUnit));
    (prototypes, missing)
}

/// The prototypes in the `.ctf` of some files, such as the object files of a program.
pub fn prototypes_of_ctf<'f>(files: impl IntoIterator<Item = &'f ElfFile>) -> Prototypes {
    let mut prototypes = Prototypes::default();
    for file in files {
        let _stale = add_ctf(file, &DebugFiles::default(), &mut prototypes);
    }
    prototypes
}

/// Adds the prototypes in a file's CTF. Returns why some of them cannot be used.
fn add_ctf(
    file: &ElfFile,
    debug: &DebugFiles,
    prototypes: &mut Prototypes,
) -> Vec<MissingPrototypes> {
    let (Some(convention), Ok(elf), Ok(Some(section))) = (
        convention(file.abi().arch),
        elf_context(file),
        file.section_named(".ctf"),
    ) else {
        return Vec::new();
    };
    let Ok(section) = CtfSection::open(section.data, elf) else {
        return Vec::new();
    };
    let (mut units, mut problems) = section.read();
    // Only needed for arrays of arrays.
    let producers = LazyCell::new(|| {
        Producers::from_comment(file).unwrap_or_else(|| Producers::from_dwarf(file, debug))
    });
    let is_wrong = |unit: &CtfUnit<'_>| matches!(producers.order(unit), ArrayOrder::Reversed(_));
    reverse_arrays(&mut units, is_wrong);
    for unit in &units {
        prototypes.add(&unit.reading.graph, convention);
        problems.extend(unit.reading.problems.iter().cloned());
    }
    let stale = problems.into_iter().filter(CtfError::is_stale);
    stale.map(MissingPrototypes::StaleCtf).collect()
}
