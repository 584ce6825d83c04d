//! What can be wrong with types in DWARF.

use std::fmt;
use std::path::PathBuf;

use unspool_elf::ModuleError;

/// Why types, or one of them, could not be read. Offsets count from the start of the section, in bytes.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TypesError {
    /// A section could not be read.
    #[error(transparent)]
    Module(#[from] ModuleError),
    /// The sections of an object file refer to each other by relocations of a machine whose relocations are not known. A linked file has none.
    #[error(
        "{}: the relocations of {section} are those of {machine}, which are not supported: object files of x86-64, i386, ARM, AArch64 and BPF are, and linked files of every machine", file.display()
    )]
    Relocations {
        /// The file.
        file: PathBuf,
        /// The section.
        section: &'static str,
        /// The machine.
        machine: ElfMachine,
    },
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
    ReadLimit {
        /// The section.
        section: &'static str,
        /// Where reading ended.
        offset: u64,
        /// How many bytes of entries are read at most.
        limit: u64,
    },
    /// The rest of a unit (`-gsplit-dwarf`) cannot be had.
    #[error("the debugging information of {unit} is in {file}: {why}")]
    Split {
        /// The unit: the name of its source file if that is known without the rest, else where it is in `.debug_info`.
        unit: String,
        /// The name of the `.dwo` file, as the unit has it.
        file: String,
        /// Why it is not read.
        why: String,
    },
    /// Something is wrong with the rest of a unit.
    #[error("in {file}: {source}")]
    SplitFile {
        /// The name of the `.dwo` file, as the unit has it.
        file: String,
        /// What is wrong.
        source: Box<TypesError>,
    },
    /// Sections of one name lie over each other.
    #[error("{}: the sections {section} overlap", file.display())]
    Overlapping {
        /// The file.
        file: PathBuf,
        /// The name of the sections.
        section: &'static str,
    },
    /// The tables of abbreviations lie over each other.
    #[error("the tables of .debug_abbrev have more than {limit} bytes in all, so they overlap")]
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

/// A machine, by the number that ELF has for it (`e_machine`). It is printed with its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ElfMachine(pub u16);

impl fmt::Display for ElfMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.0 {
            2 | 43 => "SPARC",
            4 => "m68k",
            8 => "MIPS",
            15 => "PA-RISC",
            20 => "PowerPC",
            21 => "64-bit PowerPC",
            22 => "s390",
            42 => "SuperH",
            62 => "x86-64 with addresses of 32 bits",
            183 => "AArch64 with addresses of 32 bits",
            243 => "RISC-V",
            258 => "LoongArch",
            other => return write!(f, "machine {other}"),
        };
        f.write_str(name)
    }
}
