//! Notices: what does not stop the reading of types, but matters to users.

use std::fmt::{self, Display};
use std::path::Path;

use unspool_c_types::{BtfError, CtfError};
use unspool_elf::ModuleError;

use crate::TypesError;

/// A fault, or a decision, that does not stop the reading of types. Its text is a message.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum TypesNotice<'n> {
    /// A member of an archive cannot be read.
    Member(&'n ModuleError),
    /// A debug file does not belong to its file.
    DebugFile(&'n ModuleError),
    /// Types cannot be read, or only in part.
    Faults {
        /// The file.
        file: &'n Path,
        /// The faults, at least one.
        faults: TypesFaults<'n>,
    },
    /// Units in another language have no C types.
    OtherLanguage {
        /// The file.
        file: &'n Path,
        /// The language, as in DWARF.
        language: &'n str,
        /// The number of its units.
        units: usize,
    },
    /// Of units in C++, what has C linkage is read.
    CLinkageOnly {
        /// The file.
        file: &'n Path,
        /// The number of its units.
        units: usize,
    },
    /// Arrays of arrays stay as they are stored: the order of their dimensions is unknown.
    UnknownArrayOrder {
        /// The file.
        file: &'n Path,
        /// The names of the dictionaries.
        dictionaries: &'n [String],
    },
    /// CTF cannot express all of its BTF.
    NotInCtf {
        /// The file.
        file: &'n Path,
        /// How many tags and sections are lost.
        lost: &'n str,
    },
    /// A file to be compared exports nothing.
    NoExports {
        /// The file.
        file: &'n Path,
    },
}

/// The faults of a file's types.
#[derive(Debug, Clone, Copy)]
pub enum TypesFaults<'n> {
    /// Of its CTF.
    Ctf(&'n [CtfError]),
    /// Of its BTF.
    Btf(&'n [BtfError]),
    /// Of its DWARF.
    Dwarf(&'n [TypesError]),
}

impl<'n> TypesFaults<'n> {
    /// Their number.
    #[must_use]
    pub fn count(self) -> usize {
        match self {
            TypesFaults::Ctf(faults) => faults.len(),
            TypesFaults::Btf(faults) => faults.len(),
            TypesFaults::Dwarf(faults) => faults.len(),
        }
    }

    /// The fault of a number, counted from 0.
    #[must_use]
    pub fn get(self, number: usize) -> Option<&'n dyn Display> {
        match self {
            TypesFaults::Ctf(faults) => faults.get(number).map(|fault| fault as &dyn Display),
            TypesFaults::Btf(faults) => faults.get(number).map(|fault| fault as &dyn Display),
            TypesFaults::Dwarf(faults) => faults.get(number).map(|fault| fault as &dyn Display),
        }
    }
}

/// The most dictionaries named in a message.
const MAX_NAMES: usize = 20;

impl Display for TypesNotice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            TypesNotice::Member(error) | TypesNotice::DebugFile(error) => error.fmt(f),
            TypesNotice::Faults { file, faults } => {
                let first = faults.get(0).unwrap_or(&"no fault");
                write!(f, "{}: {first}", file.display())?;
                match faults.count() {
                    0 | 1 => Ok(()),
                    count => write!(f, ", and {} more problems", count - 1),
                }
            }
            TypesNotice::OtherLanguage {
                file,
                language,
                units,
            } => {
                let left_out = match units {
                    1 => "unit is left out",
                    _ => "units are left out",
                };
                write!(
                    f,
                    "{}: {units} {left_out}: {language}, not C",
                    file.display()
                )
            }
            TypesNotice::CLinkageOnly { file, units } => {
                let of = match units {
                    1 => "1 unit".to_owned(),
                    _ => format!("{units} units"),
                };
                write!(
                    f,
                    "{}: of {of} in C++, only functions and data with C linkage are compared",
                    file.display()
                )
            }
            TypesNotice::UnknownArrayOrder { file, dictionaries } => {
                let shown = dictionaries.get(..MAX_NAMES).unwrap_or(dictionaries);
                let rest = if shown.len() < dictionaries.len() {
                    " and others"
                } else {
                    ""
                };
                write!(
                    f,
                    "{}: which gcc stored the arrays of arrays of {}{rest} is not known, and some did so the wrong way round (PR114186): they are as they are stored",
                    file.display(),
                    shown.join(", ")
                )
            }
            TypesNotice::NotInCtf { file, lost } => {
                write!(f, "{}: CTF has no place for {lost}", file.display())
            }
            TypesNotice::NoExports { file } => {
                write!(f, "{} exports neither functions nor data", file.display())
            }
        }
    }
}
