//! Faults in DWARF's types.

use std::fmt;
use std::path::PathBuf;

use unspool_elf::ModuleError;

/// Why types, or one of them, could not be read. Offsets are from the start of the section, in
/// bytes.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TypesError {
    /// A section could not be read.
    #[error(transparent)]
    Module(#[from] ModuleError),
    /// Sections of an object file refer to each other by relocations of an unsupported machine. A
    /// linked file has no such relocations.
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
    /// An entry, or a unit's header, is malformed.
    #[error("{section} at {offset:#x}: {source}")]
    Dwarf {
        /// The section.
        section: &'static str,
        /// The offset of the entry.
        offset: u64,
        /// The fault.
        source: gimli::Error,
    },
    /// An entry refers to one that does not exist.
    #[error("{section} at {offset:#x} refers to {to}")]
    Reference {
        /// The section.
        section: &'static str,
        /// The offset of the entry.
        offset: u64,
        /// The reference, and why it is invalid.
        to: String,
    },
    /// An entry lacks a required attribute.
    #[error("{section} at {offset:#x}: {what}")]
    Incomplete {
        /// The section.
        section: &'static str,
        /// The offset of the entry.
        offset: u64,
        /// The missing attribute.
        what: &'static str,
    },
    /// Units refer to each other so often that reading all of them would take disproportionate
    /// time.
    #[error(
        "{section} at {offset:#x}: entries are referred to so often that more than {limit} bytes would have to be read"
    )]
    ReadLimit {
        /// The section.
        section: &'static str,
        /// The offset at which reading ended.
        offset: u64,
        /// The maximum number of bytes of entries to read.
        limit: u64,
    },
    /// The split part of a unit (`-gsplit-dwarf`) is not available.
    #[error("the debugging information of {unit} is in {file}: {reason}")]
    Split {
        /// The unit: the name of its source file if that is known, else its offset in
        /// `.debug_info`.
        unit: String,
        /// The name of the `.dwo` file, from the unit.
        file: String,
        /// The reason.
        reason: String,
    },
    /// A fault in the split part of a unit.
    #[error("in {file}: {source}")]
    SplitFile {
        /// The name of the `.dwo` file, from the unit.
        file: String,
        /// The fault.
        source: Box<TypesError>,
    },
    /// Sections of one name overlap.
    #[error("{}: the sections {section} overlap", file.display())]
    Overlapping {
        /// The file.
        file: PathBuf,
        /// The name of the sections.
        section: &'static str,
    },
    /// The tables of abbreviations overlap.
    #[error("the tables of .debug_abbrev have more than {limit} bytes in all, so they overlap")]
    Abbreviations {
        /// The maximum number of bytes of tables to read.
        limit: u64,
    },
}

/// For errors of a `.dwo` package's index.
impl From<gimli::Error> for TypesError {
    fn from(source: gimli::Error) -> TypesError {
        TypesError::Dwarf {
            section: ".debug_cu_index",
            offset: 0,
            source,
        }
    }
}

/// A machine, by its number in ELF (`e_machine`). It is printed with its name.
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
