//! The types of all units of a program.

use std::borrow::Cow;
use std::sync::Arc;

use gimli::{AttributeValue, DwLang, UnitType};
use unspool_ctf::{Graph, TypeId};
use unspool_ir::Vaddr;
use unspool_module::ElfFile;

use crate::entry::text;
use crate::error::TypesError;
use crate::index::{Entry, Index, Place};
use crate::unit::UnitReader;

/// What a program's debug information says of its types.
#[derive(Debug, Default)]
pub struct Program<'a> {
    /// The units in C, in their order.
    pub units: Vec<UnitTypes<'a>>,
    /// The units whose types are not here.
    pub left_out: Vec<LeftOut>,
    /// What is wrong with single entries: what they would be is [`unspool_ctf::Kind::Unknown`], or is not there.
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

/// A unit that is not in [`Program::units`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// Where it is in `.debug_info`, in bytes.
    pub offset: u64,
    /// The name of its source file.
    pub name: String,
    /// Why its types are not there.
    pub reason: Reason,
}

/// Why a unit is left out.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// It is in a language whose types CTF and BTF cannot say.
    Language(String),
    /// Its types are in a file of their own (`-gsplit-dwarf`), which is not read.
    Split(String),
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Reason::Language(language) => write!(f, "it is in {language}, and not in C"),
            Reason::Split(file) => write!(f, "its types are in {file}, which is not read"),
        }
    }
}

/// Reads the types of a file that has debug information, and of the file that it shares some with (`.gnu_debugaltlink`). Takes memory in proportion to
/// the debug information. There are no units if the file has none.
///
/// # Errors
///
/// A section cannot be read, or its abbreviations overlap. What is wrong with single units and entries is in [`Program::problems`].
pub fn read<'a>(
    file: &'a ElfFile,
    supplementary: Option<&'a ElfFile>,
) -> Result<Program<'a>, TypesError> {
    let mut index = Index::of(file, supplementary)?;
    let mut program = Program {
        problems: std::mem::take(&mut index.problems),
        ..Program::default()
    };
    for (kind, root) in index.roots() {
        let is_whole = match kind {
            UnitType::Compilation => true,
            UnitType::Skeleton(_) => false,
            // What others are made of is read with these.
            _ => continue,
        };
        if let Err(problem) = program.add(&index, root, is_whole) {
            program.problems.push(problem);
        }
    }
    Ok(program)
}

impl<'a> Program<'a> {
    fn add(&mut self, index: &Index<'a>, root: Place, is_whole: bool) -> Result<(), TypesError> {
        let entry = index.entry(root)?;
        if entry.tag() == gimli::DW_TAG_partial_unit {
            return Ok(()); // before DWARF 5, the header does not tell
        }
        let name = name(index, root, &entry);
        if let Some(reason) = left_out(index, root, &entry, is_whole) {
            self.left_out.push(LeftOut {
                offset: root.offset as u64,
                name: name.unwrap_or_default().into_owned(),
                reason,
            });
            return Ok(());
        }
        let (unit, _) = index.unit(root)?;
        let mut reader = UnitReader::new(index, u64::from(unit.header.address_size()));
        reader.unit(root);
        self.problems.append(&mut reader.problems);
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

/// The name of a unit's source file, with the directory.
pub(crate) fn name<'a>(index: &Index<'a>, root: Place, entry: &Entry<'a>) -> Option<Cow<'a, str>> {
    let name = text(index, root, entry, gimli::DW_AT_name)?;
    match text(index, root, entry, gimli::DW_AT_comp_dir) {
        Some(folder) if !name.starts_with('/') => Some(format!("{folder}/{name}").into()),
        _ => Some(name),
    }
}

/// Why a unit is left out, if it is.
fn left_out<'a>(
    index: &Index<'a>,
    root: Place,
    entry: &Entry<'a>,
    is_whole: bool,
) -> Option<Reason> {
    let split = [gimli::DW_AT_dwo_name, gimli::DW_AT_GNU_dwo_name]
        .into_iter()
        .find_map(|name| text(index, root, entry, name));
    if split.is_some() || !is_whole {
        let file = split.map_or("a .dwo file".to_owned(), Cow::into_owned);
        return Some(Reason::Split(file));
    }
    let language = match entry.attr_value(gimli::DW_AT_language) {
        Some(AttributeValue::Language(language)) => language,
        _ => DwLang(0),
    };
    (!is_c(language)).then(|| {
        let name = language
            .static_string()
            .map(|name| name.trim_start_matches("DW_LANG_"));
        Reason::Language(name.unwrap_or("an unknown language").to_owned())
    })
}

/// C23, which DWARF 5 was given after it was published.
const DW_LANG_C23: DwLang = DwLang(0x3e);

/// Whether types of a language are those of C. Assembly has none, which is not worth a word.
fn is_c(language: DwLang) -> bool {
    matches!(
        language,
        gimli::DW_LANG_C
            | gimli::DW_LANG_C89
            | gimli::DW_LANG_C99
            | gimli::DW_LANG_C11
            | gimli::DW_LANG_C17
            | DW_LANG_C23
            | gimli::DW_LANG_Mips_Assembler
    )
}
