//! DWARF of a file as units for the linker, and as the dictionaries that a linker makes of them.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use unspool_c_types::{Aliases, LinkOptions, LinkUnit, SHARED, SymbolKind, link};
use unspool_elf::{DebugFiles, ElfFile};

use super::loader::symbol_names;
use super::{LoadedDicts, NamedDict, TypeFileError, TypeLoader, TypesFaults, TypesNotice};
use crate::TypesError;
use crate::declared_types::DeclaredTypes;
use crate::elf::elf_context;
use crate::program::{ProgramTypes, TypesRequest, read_requested_types};
use crate::split::SplitFiles;

/// The DWARF of a file.
pub(super) struct DwarfUnits<'f> {
    /// Its units.
    pub(super) units: Vec<LinkUnit<'f>>,
    /// The files that define types, if public headers were given.
    pub(super) declared: Option<DeclaredTypes<'f>>,
    /// Whether all of it could be read.
    pub(super) is_clean: bool,
}

impl TypeLoader<'_> {
    /// The units in C of a file's DWARF, in it or in its debug files, ready to be linked: with the
    /// functions that they define, and with declarations of those that no unit defines. Aliases have
    /// the types of their targets. Also whether all of it could be read.
    ///
    /// # Errors
    ///
    /// The DWARF cannot be read, or all of it is in files that are missing.
    pub fn dwarf<'f>(
        self,
        file: &'f ElfFile,
        debug: &'f DebugFiles,
        splits: &'f SplitFiles,
    ) -> Result<(Vec<LinkUnit<'f>>, bool), TypeFileError> {
        let request = TypesRequest::default();
        let read = self.requested_units(file, debug, splits, request, |_| true)?;
        Ok((read.units, read.is_clean))
    }

    /// The units that the loader reads, with declarations of functions in the file's symbols only.
    pub(super) fn dwarf_of_symbols<'f>(
        self,
        file: &'f ElfFile,
        debug: &'f DebugFiles,
        splits: &'f SplitFiles,
    ) -> Result<DwarfUnits<'f>, TypeFileError> {
        let mut names = HashSet::new();
        for file in std::iter::once(file).chain(debug.debug.as_deref()) {
            let context = elf_context(file)?;
            let symbols = context.symbols(true).chain(context.symbols(false));
            names.extend(symbol_names(symbols, SymbolKind::Function));
        }
        let request = TypesRequest {
            units: self.units,
            has_files: self.headers.is_some(),
        };
        self.requested_units(file, debug, splits, request, |name| names.contains(name))
    }

    fn requested_units<'f>(
        self,
        file: &'f ElfFile,
        debug: &'f DebugFiles,
        splits: &'f SplitFiles,
        request: TypesRequest,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Result<DwarfUnits<'f>, TypeFileError> {
        let mut program = read_requested_types(file, debug, splits, request)?;
        self.report_dwarf(debug.debug.as_deref().unwrap_or(file), &program);
        let mut problems = program.problems.iter();
        let is_split = problems.any(|problem| matches!(problem, TypesError::Split { .. }));
        if program.units.is_empty() && is_split {
            let file = file.path().to_owned();
            return Err(TypeFileError::Split { file });
        }
        let is_clean = program.problems.is_empty();
        let mut aliases = Aliases::default();
        let files = std::iter::once(file).chain(debug.debug.as_deref());
        aliases.add(&files.map(elf_context).collect::<Result<Vec<_>, _>>()?);
        let declared = program.declared.take();
        let mut units = defining_units(program, is_wanted);
        aliases.apply_to_units(&mut units);
        Ok(DwarfUnits {
            units,
            declared,
            is_clean,
        })
    }

    /// The DWARF of a file as a dictionary of shared types, and one for each unit that has others.
    /// With names of parameters, which CTF lacks. `None` without units in C.
    pub(super) fn dwarf_dictionaries<'f>(
        self,
        file: &'f ElfFile,
        debug: &'f DebugFiles,
        splits: &'f SplitFiles,
    ) -> Result<Option<LoadedDicts<'f>>, TypeFileError> {
        let (units, is_clean) = self.dwarf(file, debug, splits)?;
        if units.is_empty() {
            return Ok(None);
        }
        let options = LinkOptions {
            threads: self.threads,
            ..LinkOptions::default()
        };
        let linked = link(&units, options);
        let children = linked.children.into_iter();
        let children = children.map(|(name, graph)| (name, Arc::new(graph)));
        let all = std::iter::once((Cow::Borrowed(SHARED), linked.shared)).chain(children);
        let dictionaries = all.map(|(name, graph)| NamedDict {
            name,
            graph,
            ctf: None,
        });
        let dictionaries: Vec<_> = dictionaries.collect();
        Ok(Some(LoadedDicts {
            is_archive: dictionaries.len() > 1,
            dictionaries,
            is_clean,
            reversed_by: None,
        }))
    }

    /// Reports problems of the debug information in a file, and the units that are left out.
    fn report_dwarf(self, file: &ElfFile, program: &ProgramTypes<'_>) {
        let file = file.path();
        let mut languages: BTreeMap<&str, usize> = BTreeMap::new();
        for unit in &program.skipped_units {
            *languages.entry(&unit.language).or_default() += 1;
        }
        for (language, units) in languages {
            self.report(TypesNotice::OtherLanguage {
                file,
                language,
                units,
            });
        }
        if program.cpp_units > 0 {
            let units = program.cpp_units;
            self.report(TypesNotice::CLinkageOnly { file, units });
        }
        if !program.problems.is_empty() {
            let faults = TypesFaults::Dwarf(&program.problems);
            self.report(TypesNotice::Faults { file, faults });
        }
    }
}

/// The types of units, with the functions that they define: the defining unit describes a function
/// best. Wanted declarations without a definition in any unit are kept.
fn defining_units<'a>(
    program: ProgramTypes<'a>,
    is_wanted: impl Fn(&str) -> bool,
) -> Vec<LinkUnit<'a>> {
    let entries = program.units.iter().flat_map(|unit| &unit.entries);
    let defined: HashSet<Cow<'a, str>> = entries.map(|(_, name, _)| name.clone()).collect();
    let units = program.units.into_iter().map(|unit| {
        let own: HashSet<&str> = unit.entries.iter().map(|(_, name, _)| &**name).collect();
        let mut graph = Arc::unwrap_or_clone(unit.graph);
        graph.functions.retain(|symbol| {
            let name = &*symbol.name;
            own.contains(name) || (!defined.contains(name) && is_wanted(name))
        });
        LinkUnit::new(Arc::new(graph))
    });
    units.collect()
}
