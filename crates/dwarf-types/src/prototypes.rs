//! Prototypes of functions.

use std::collections::HashMap;
use std::sync::Arc;

use unspool_c_types::{Graph, TypeId};
use unspool_elf::{DebugFiles, ElfFile};
use unspool_rows::Vaddr;

use crate::error::TypesError;
use crate::program::{ProgramTypes, read_types};
use crate::split::SplitFiles;

/// The prototypes of a program's functions.
#[derive(Debug, Default)]
pub struct DwarfPrototypes {
    graphs: Vec<Arc<Graph<'static>>>,
    by_address: Vec<(Vaddr, usize, TypeId)>,
    by_name: HashMap<Box<str>, Vec<(usize, TypeId)>>,
    /// The reasons why some units have none.
    missing: Vec<TypesError>,
}

/// A function's prototype: a type of the kind [`unspool_c_types::TypeKind::Function`] in the graph
/// of its unit.
#[derive(Debug, Clone, Copy)]
pub struct DwarfPrototype<'p> {
    /// The types of the function's unit.
    pub graph: &'p Graph<'static>,
    /// The function's type.
    pub ty: TypeId,
}

impl DwarfPrototypes {
    /// The prototypes of all functions in a module's DWARF, in the module or in its debug files.
    /// Empty without DWARF.
    ///
    /// # Errors
    ///
    /// As for [`read_types`](crate::read_types). Faults of single entries are ignored; [`DwarfPrototypes::missing`] lists
    /// missing units.
    pub fn read(module: &ElfFile, files: &DebugFiles) -> Result<DwarfPrototypes, TypesError> {
        let splits = SplitFiles::default();
        let program = read_types(module, files, &splits)?;
        Ok(DwarfPrototypes::from_types(program))
    }

    /// The prototypes of all functions of a program.
    #[must_use]
    pub fn from_types(program: ProgramTypes<'_>) -> DwarfPrototypes {
        let mut prototypes = DwarfPrototypes::default();
        let problems = program.problems.into_iter();
        let is_missing = |problem: &TypesError| matches!(problem, TypesError::Split { .. });
        prototypes.missing = problems.filter(is_missing).collect();
        for (nth, unit) in program.units.into_iter().enumerate() {
            let entries = unit.entries.into_iter();
            let addresses = entries.map(|(address, _, ty)| (address, nth, ty));
            prototypes.by_address.extend(addresses);
            for symbol in &unit.graph.functions {
                let named = prototypes.by_name.entry(symbol.name.as_ref().into());
                named.or_default().push((nth, symbol.ty));
            }
            let graph = Arc::unwrap_or_clone(unit.graph).into_owned();
            prototypes.graphs.push(Arc::new(graph));
        }
        prototypes.by_address.sort_unstable();
        prototypes
    }

    /// Why units have no prototypes: each a [`TypesError::Split`], for a unit with an unavailable
    /// split part (`-gsplit-dwarf`).
    #[must_use]
    pub fn missing(&self) -> &[TypesError] {
        &self.missing
    }

    /// The types of each unit, with the addresses and types of its functions, ascending.
    pub fn units(&self) -> impl Iterator<Item = (&Graph<'static>, Vec<(Vaddr, TypeId)>)> {
        let mut functions: Vec<Vec<_>> = vec![Vec::new(); self.graphs.len()];
        for (address, unit, ty) in &self.by_address {
            if let Some(functions) = functions.get_mut(*unit) {
                functions.push((*address, *ty));
            }
        }
        self.graphs.iter().map(|graph| &**graph).zip(functions)
    }

    /// The prototype of the function that begins at an address of the file. For a compiler-made
    /// copy of a function (`.constprop.0`, `.isra.0`, `.part.0`), it is the source's, though the
    /// copy's parameters may differ.
    #[must_use]
    pub fn by_address(&self, address: Vaddr) -> Option<DwarfPrototype<'_>> {
        let behind = self.by_address.partition_point(|entry| entry.0 < address);
        let (found, unit, ty) = self.by_address.get(behind)?;
        (*found == address).then(|| self.prototype(*unit, *ty))?
    }

    /// The prototypes of functions with a name: several if units have local functions of that name,
    /// or only declare it.
    pub fn by_name(&self, name: &str) -> impl Iterator<Item = DwarfPrototype<'_>> {
        let found = self.by_name.get(name).into_iter().flatten();
        found.filter_map(|(unit, ty)| self.prototype(*unit, *ty))
    }

    fn prototype(&self, unit: usize, ty: TypeId) -> Option<DwarfPrototype<'_>> {
        let graph = self.graphs.get(unit)?;
        Some(DwarfPrototype { graph, ty })
    }
}
