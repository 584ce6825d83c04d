//! What can be wrong with types in DWARF.

use unspool_module::ModuleError;

/// Why types, or one of them, could not be read. Offsets count from the start of the section, in bytes.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TypesError {
    /// A section could not be read.
    #[error(transparent)]
    Module(#[from] ModuleError),
    /// An entry, or a unit's header, is not as DWARF has it.
    #[error("{section} at {offset:#x}: {source}")]
    Dwarf {
        /// The section.
        section: &'static str,
        /// Where the entry is.
        offset: u64,
        /// What is wrong.
        source: gimli::Error,
    },
    /// An entry refers to one that is not there.
    #[error("{section} at {offset:#x} refers to {to}")]
    Reference {
        /// The section.
        section: &'static str,
        /// Where the entry is.
        offset: u64,
        /// What it refers to, and why that is nothing.
        to: String,
    },
    /// An entry lacks what its kind must have.
    #[error("{section} at {offset:#x}: {what}")]
    Incomplete {
        /// The section.
        section: &'static str,
        /// Where the entry is.
        offset: u64,
        /// What it lacks.
        what: &'static str,
    },
    /// Units refer to each other so often that reading them all would take much longer than their size justifies.
    #[error(
        "{section} at {offset:#x}: entries are referred to so often that more than {limit} bytes would have to be read"
    )]
    TooMuch {
        /// The section.
        section: &'static str,
        /// Where reading ended.
        offset: u64,
        /// How many bytes of entries are read at most.
        limit: u64,
    },
    /// The rest of a unit (`-gsplit-dwarf`) cannot be had.
    #[error("what there is to say of a unit is in {file}: {why}")]
    Split {
        /// The name of the `.dwo` file, as the unit has it.
        file: String,
        /// Why it is not read.
        why: String,
    },
    /// The tables of abbreviations lie over each other.
    #[error("the tables of .debug_abbrev have more than {limit} bytes together, and so overlap")]
    Abbreviations {
        /// How many bytes of tables are read at most.
        limit: u64,
    },
}

/// Of the index of a package of `.dwo` files.
impl From<gimli::Error> for TypesError {
    fn from(source: gimli::Error) -> TypesError {
        TypesError::Dwarf {
            section: ".debug_cu_index",
            offset: 0,
            source,
        }
    }
}
