//! Sources of prototypes: the DWARF and the CTF of files.

use std::cell::LazyCell;

use unspool_c_types::{CtfSection, CtfUnit, reverse_arrays};
use unspool_dwarf_types::{ArrayOrder, Producers, TypesError, convention, elf_context};
use unspool_elf::{DebugFiles, ElfFile};

use crate::prototype::{Prototype, Prototypes};

/// The prototypes of a file's functions: from its DWARF or its debug files', and from the `.ctf` of
/// any of these. Unreadable data is ignored. The second result has the units without prototypes
/// because their split part is missing (`-gsplit-dwarf`).
#[must_use]
pub fn prototypes(file: &ElfFile, debug: &DebugFiles) -> (Prototypes, Vec<TypesError>) {
    let mut prototypes = Prototypes::default();
    for one in [file].into_iter().chain(debug.debug.as_deref()) {
        add_ctf(one, debug, &mut prototypes);
    }
    let dwarf = unspool_dwarf_types::DwarfPrototypes::read(file, debug).unwrap_or_default();
    if let Some(convention) = convention(file.abi().arch) {
        for (address, found) in dwarf.iter() {
            if let Some(prototype) = Prototype::from_type(found.graph, found.ty, convention) {
                prototypes.add_at(address.0, prototype);
            }
        }
    }
    (prototypes, dwarf.missing().to_vec())
}

/// The prototypes in the `.ctf` of some files, such as the object files of a program.
pub fn prototypes_of_ctf<'f>(files: impl IntoIterator<Item = &'f ElfFile>) -> Prototypes {
    let mut prototypes = Prototypes::default();
    for file in files {
        add_ctf(file, &DebugFiles::default(), &mut prototypes);
    }
    prototypes
}

fn add_ctf(file: &ElfFile, debug: &DebugFiles, prototypes: &mut Prototypes) {
    let (Some(convention), Ok(elf), Ok(Some(section))) = (
        convention(file.abi().arch),
        elf_context(file),
        file.section_named(".ctf"),
    ) else {
        return;
    };
    let Ok(section) = CtfSection::open(section.data, elf) else {
        return;
    };
    let mut units = section.parents();
    let children: Vec<_> = section.children(&units).flatten().collect();
    units.extend(children);
    // Only needed for arrays of arrays.
    let producers = LazyCell::new(|| {
        Producers::from_comment(file).unwrap_or_else(|| Producers::from_dwarf(file, debug))
    });
    let is_wrong = |unit: &CtfUnit<'_>| matches!(producers.order(unit), ArrayOrder::Reversed(_));
    reverse_arrays(&mut units, is_wrong);
    for unit in &units {
        prototypes.add(&unit.reading.graph, convention);
    }
}
