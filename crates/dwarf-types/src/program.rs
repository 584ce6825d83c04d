//! The types of all units of a program.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use gimli::{DwLang, UnitType};
use unspool_c_types::{Graph, TypeId};
use unspool_elf::{DebugFiles, ElfFile};
use unspool_rows::Vaddr;

use crate::attributes::text;
use crate::error::TypesError;
use crate::index::{DieEntry, DieIndex, DieRef};
use crate::split::{self, SplitFiles, SplitUnits};
use crate::unit::{UnitReader, is_c, language_of};

/// What a program's debug information says of its types.
#[derive(Debug, Default)]
pub struct ProgramTypes<'a> {
    /// The units in C, in their order. What assemblers write is not among them: they describe functions without their types.
    pub units: Vec<UnitTypes<'a>>,
    /// The units in other languages.
    pub skipped_units: Vec<SkippedUnit>,
    /// What is wrong with single entries: what they would be is [`unspool_c_types::Kind::Unknown`], or is not there. [`TypesError::Split`] is of units the rest of
    /// which cannot be had, and which are not there.
    pub problems: Vec<TypesError>,
}

/// The types of one unit.
#[derive(Debug)]
pub struct UnitTypes<'a> {
    /// Its types, functions and variables, also those that are declared only. Its name is that of the source file, with the
    /// directory that the compiler ran in.
    pub graph: Arc<Graph<'a>>,
    /// Where functions begin, with their names and types. The copies that a compiler makes of a function (`.constprop.0`, `.isra.0`, `.part.0`) stand under its name,
    /// though they may be called otherwise.
    pub entries: Vec<(Vaddr, Cow<'a, str>, TypeId)>,
}

/// A unit that is not in [`ProgramTypes::units`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedUnit {
    /// Where it is in `.debug_info`, in bytes.
    pub offset: u64,
    /// The name of its source file.
    pub name: String,
    /// Its language, whose types CTF and BTF cannot say.
    pub language: String,
}

/// Reads the types that DWARF says of a module, in the module or in its debug files. Takes memory in proportion to the debug information. There are no
/// units if there is none. The files that have the rest of units (`-gsplit-dwarf`) are found as for
/// [`Variables`](crate::variables::Variables::of_module).
///
/// # Errors
///
/// A section cannot be read, or its abbreviations overlap. What is wrong with single units and entries is in [`ProgramTypes::problems`].
pub fn read_types<'a>(
    module: &'a ElfFile,
    files: &'a DebugFiles,
    splits: &'a SplitFiles,
) -> Result<ProgramTypes<'a>, TypesError> {
    let (index, splits) = split::units(module, files, splits)?;
    let mut program = ProgramTypes {
        problems: index.problems.clone(),
        ..ProgramTypes::default()
    };
    for (kind, root) in index.roots() {
        // What others are made of is read with these.
        if !matches!(kind, UnitType::Compilation | UnitType::Skeleton(_)) {
            continue;
        }
        if let Err(problem) = program.add(&index, &splits, root) {
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
    ) -> Result<(), TypesError> {
        let skeleton = index.entry(root)?;
        if skeleton.tag() == gimli::DW_TAG_partial_unit {
            return Ok(()); // before DWARF 5, the header does not tell
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
        // Of a unit with a rest, either has the directory, or both.
        let folder = text(&rest, place, &entry, gimli::DW_AT_comp_dir)
            .or_else(|| text(index, root, &skeleton, gimli::DW_AT_comp_dir));
        let name =
            text(&rest, place, &entry, gimli::DW_AT_name).map(|name| join_directory(name, folder));
        if let Some(language) = other_language(&entry) {
            self.skipped_units.push(SkippedUnit {
                offset: root.offset as u64,
                name: name.unwrap_or_default().into_owned(),
                language,
            });
            return Ok(());
        }
        // What assemblers write of functions has no types.
        if language_of(&entry) == Some(gimli::DW_LANG_Mips_Assembler) {
            return Ok(());
        }
        let (unit, _) = rest.unit(place).map_err(in_rest)?;
        let mut reader = UnitReader::new(&rest, place, u64::from(unit.header.address_size()));
        reader.unit(place);
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

/// The name of a unit's source file, with the directory that the compiler ran in.
pub(crate) fn join_directory<'a>(name: Cow<'a, str>, folder: Option<Cow<'a, str>>) -> Cow<'a, str> {
    match folder {
        Some(folder) if !name.starts_with('/') => format!("{folder}/{name}").into(),
        _ => name,
    }
}

/// The language of a unit, if that is not C.
fn other_language(entry: &DieEntry<'_>) -> Option<String> {
    let language = language_of(entry).unwrap_or(DwLang(0));
    (!is_c_family(language)).then(|| {
        let name = language
            .static_string()
            .map(|name| name.trim_start_matches("DW_LANG_"));
        name.unwrap_or("an unknown language").to_owned()
    })
}

/// C23, which DWARF 5 was given after it was published.
const DW_LANG_C23: DwLang = DwLang(0x3e);

/// Whether types of a language are those of C. Assembly has none, which is not worth a word.
fn is_c_family(language: DwLang) -> bool {
    is_c(language) || [DW_LANG_C23, gimli::DW_LANG_Mips_Assembler].contains(&language)
}
