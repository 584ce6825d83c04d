//! The types of all units of a program.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use gimli::{DwLang, UnitType};
use unspool_c_types::{Graph, TypeId};
use unspool_elf::{DebugFiles, ElfFile};
use unspool_rows::Vaddr;

use crate::attributes::text;
use crate::declared_types::DeclaredTypes;
use crate::error::TypesError;
use crate::index::{DieIndex, DieRef};
use crate::split::{self, SplitFiles, SplitUnits};
use crate::unit::{UnitReader, is_c, is_cpp, language_of};

/// The types in a program's debug information.
#[derive(Debug, Default)]
pub struct ProgramTypes<'a> {
    /// The units in C, in order. Assembled units are left out: they describe functions without
    /// types.
    pub units: Vec<UnitTypes<'a>>,
    /// The units in other languages.
    pub skipped_units: Vec<SkippedUnit>,
    /// Faults of single entries: those become [`unspool_c_types::TypeKind::Unknown`], or are
    /// dropped. [`TypesError::Split`] is for units that are missing because their split part is not
    /// available.
    pub problems: Vec<TypesError>,
    /// The number of units in C++ in [`ProgramTypes::units`].
    pub(crate) cpp_units: usize,
    /// The files that define types, if they were asked for.
    pub(crate) declared: Option<DeclaredTypes<'a>>,
}

/// What is read of a program's types.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TypesRequest {
    /// The units that are read.
    pub(crate) units: UnitChoice,
    /// Whether the files that define types are wanted.
    pub(crate) has_files: bool,
}

/// The units of which types are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UnitChoice {
    /// Those in C.
    #[default]
    C,
    /// Those in C, and the functions and data with C linkage (`extern "C"`) in C++, with the types
    /// that these lead to. Structures have what their use depends on: a table of virtual functions,
    /// virtual bases. A class that is passed by its address is a pointer.
    CLinkage,
}

/// The types of one unit.
#[derive(Debug)]
pub struct UnitTypes<'a> {
    /// Its types, functions and variables, including declarations. Its name is that of the source
    /// file, with the compiler's working directory.
    pub graph: Arc<Graph<'a>>,
    /// Start addresses of functions, with names and types. Compiler-made copies of a function
    /// (`.constprop.0`, `.isra.0`, `.part.0`) have its name, though their parameters may differ.
    pub entries: Vec<(Vaddr, Cow<'a, str>, TypeId)>,
}

/// A unit that is not in [`ProgramTypes::units`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedUnit {
    /// Its offset in `.debug_info`, in bytes.
    pub offset: u64,
    /// The name of its source file.
    pub name: String,
    /// Its language. CTF and BTF cannot represent its types.
    pub language: String,
}

/// Reads the types in a module's DWARF, in the module or in its debug files. Takes memory in
/// proportion to the debug information. Without debug information the result has no units. Files of
/// split units (`-gsplit-dwarf`) are found as for
/// [`Variables`](crate::variables::Variables::from_module).
///
/// # Errors
///
/// A section cannot be read, or its abbreviations overlap. Faults of single units and entries are
/// in [`ProgramTypes::problems`].
pub fn read_types<'a>(
    module: &'a ElfFile,
    files: &'a DebugFiles,
    splits: &'a SplitFiles,
) -> Result<ProgramTypes<'a>, TypesError> {
    read_requested_types(module, files, splits, TypesRequest::default())
}

/// Reads the types of a request.
pub(crate) fn read_requested_types<'a>(
    module: &'a ElfFile,
    files: &'a DebugFiles,
    splits: &'a SplitFiles,
    request: TypesRequest,
) -> Result<ProgramTypes<'a>, TypesError> {
    let (index, splits) = split::units(module, files, splits)?;
    let mut program = ProgramTypes {
        problems: index.problems.clone(),
        declared: request.has_files.then(DeclaredTypes::default),
        ..ProgramTypes::default()
    };
    for (kind, root) in index.roots() {
        // Partial units are read with the units that import them.
        if !matches!(kind, UnitType::Compilation | UnitType::Skeleton(_)) {
            continue;
        }
        if let Err(problem) = program.add(&index, &splits, root, request) {
            program.problems.push(problem);
        }
        program.problems.append(&mut splits.take_problems());
    }
    Ok(program)
}

impl<'a> ProgramTypes<'a> {
    fn add(
        &mut self,
        index: &Rc<DieIndex<'a>>,
        splits: &SplitUnits<'a>,
        root: DieRef,
        request: TypesRequest,
    ) -> Result<(), TypesError> {
        let skeleton = index.entry(root)?;
        if skeleton.tag() == gimli::DW_TAG_partial_unit {
            return Ok(()); // before DWARF 5, the header does not have the id
        }
        let Some((rest, place)) = splits.split_unit(index, root) else {
            return Ok(());
        };
        let file = split::name(index, root);
        let in_rest = |source| match &file {
            Some(file) => TypesError::SplitFile {
                file: file.clone(),
                source: Box::new(source),
            },
            None => source,
        };
        let entry = rest.entry(place).map_err(in_rest)?;
        // For a split unit, the skeleton or the split part has the directory, or both.
        let folder = text(&rest, place, &entry, gimli::DW_AT_comp_dir)
            .or_else(|| text(index, root, &skeleton, gimli::DW_AT_comp_dir));
        let name =
            text(&rest, place, &entry, gimli::DW_AT_name).map(|name| join_directory(name, folder));
        let language = language_of(&entry);
        let is_cpp = language.is_some_and(is_cpp) && request.units == UnitChoice::CLinkage;
        if let Some(language) = other_language(language).filter(|_| !is_cpp) {
            self.skipped_units.push(SkippedUnit {
                offset: root.offset as u64,
                name: name.unwrap_or_default().into_owned(),
                language,
            });
            return Ok(());
        }
        // Assemblers describe functions without types.
        if language == Some(gimli::DW_LANG_Mips_Assembler) {
            return Ok(());
        }
        let (unit, _) = rest.unit(place).map_err(in_rest)?;
        let mut reader = UnitReader::new(&rest, place, u64::from(unit.header.address_size()));
        reader.declared = request.has_files.then(DeclaredTypes::default);
        if is_cpp {
            reader.unit_of_cpp(place);
            self.cpp_units += 1;
        } else {
            reader.unit(place);
        }
        if let (Some(all), Some(own)) = (&mut self.declared, reader.declared.take()) {
            all.append(own);
        }
        let problems = std::mem::take(&mut reader.problems);
        self.problems.extend(problems.into_iter().map(in_rest));
        let entries = std::mem::take(&mut reader.entries);
        let mut graph = reader.graph();
        graph.unit = name;
        self.units.push(UnitTypes {
            graph: Arc::new(graph),
            entries,
        });
        Ok(())
    }
}

/// The name of a unit's source file, with the compiler's working directory.
pub(crate) fn join_directory<'a>(name: Cow<'a, str>, folder: Option<Cow<'a, str>>) -> Cow<'a, str> {
    match folder {
        Some(folder) if !name.starts_with('/') => format!("{folder}/{name}").into(),
        _ => name,
    }
}

/// The language of a unit, if it is not C.
fn other_language(language: Option<DwLang>) -> Option<String> {
    let language = language.unwrap_or(DwLang(0));
    (!is_c_family(language)).then(|| {
        let name = language
            .static_string()
            .map(|name| name.trim_start_matches("DW_LANG_"));
        name.unwrap_or("an unknown language").to_owned()
    })
}

/// DWARF's number for C23, assigned after version 5 was published.
const DW_LANG_C23: DwLang = DwLang(0x3e);

/// Whether a language has C's types. Assembly has none, so it is not reported.
fn is_c_family(language: DwLang) -> bool {
    is_c(language) || [DW_LANG_C23, gimli::DW_LANG_Mips_Assembler].contains(&language)
}
