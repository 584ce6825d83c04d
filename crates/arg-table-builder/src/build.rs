//! Building the table of a file.

use unspool_check::{CheckSubject, CodeOrigin, DeclaredTable, SubjectError};
use unspool_elf::{DebugFiles, ElfFile, Symbols, TableKey};

use crate::encode::{CodeTooLarge, encode};
use crate::functions::analyze_file;
use crate::prototype_sources::{MissingPrototypes, prototypes};

/// Why a file has no argument table.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// No prototypes are known for its functions.
    #[error(
        "{file}: the parameters of its functions are not known: build it with -g, or with gcc -gctf, and see `unspool ctf link --into`"
    )]
    NoTypes {
        /// The file.
        file: String,
        /// The missing or unusable types that may have them.
        missing: Vec<MissingPrototypes>,
    },
    /// Its code cannot be analyzed.
    #[error(transparent)]
    Subject(#[from] SubjectError),
    /// It is too large.
    #[error(transparent)]
    TooLarge(#[from] CodeTooLarge),
}

/// A file's argument table.
#[derive(Debug, Clone)]
pub struct BuildOutput {
    /// The table.
    pub bytes: Vec<u8>,
    /// The missing or unusable types: functions have no prototypes in the table because of them. A
    /// later build with them gives another table.
    pub missing: Vec<MissingPrototypes>,
}

/// Builds a file's argument table. `debug` are its separate debug files. File and debug files
/// determine the table's key ([`DebugFiles::key`]); without a key, the table can be used but not
/// cached.
///
/// # Errors
///
/// No prototypes are known for its functions, or its code cannot be analyzed.
pub fn build_table(file: &ElfFile, debug: &DebugFiles) -> Result<BuildOutput, BuildError> {
    let (prototypes, missing) = prototypes(file, debug);
    if prototypes.is_empty() {
        return Err(BuildError::NoTypes {
            file: file.path().to_string_lossy().into_owned(),
            missing,
        });
    }
    let declarations = DeclaredTable::read(file)?;
    let subject = CheckSubject::new(file, &declarations, CodeOrigin::from_file(file))?;
    let symbols = Symbols::new(file, debug.debug.as_deref());
    let key = debug.key(file).unwrap_or(TableKey {
        build_id: file.build_id(),
        content: [0; 20],
    });
    let followed = analyze_file(&subject, &symbols, &prototypes);
    let bytes = encode(&followed, prototypes.types(), &key)?;
    Ok(BuildOutput { bytes, missing })
}
