//! The table of a file.

use unspool_check::{CheckSubject, CodeOrigin, DeclaredTable, SubjectError};
use unspool_dwarf_types::TypesError;
use unspool_elf::{DebugFiles, ElfFile, Symbols, TableKey};

use crate::encode::{CodeTooLarge, encode};
use crate::functions::analyze_file;
use crate::prototype_sources::prototypes;

/// Why there is no table of a file's arguments.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// It does not say what its functions take.
    #[error(
        "{file}: the parameters of its functions are not known: build it with -g, or with gcc -gctf, and see `unspool ctf link --into`"
    )]
    NoTypes {
        /// The file.
        file: String,
        /// The units that may say it and are missing.
        missing: Vec<TypesError>,
    },
    /// Its code cannot be followed.
    #[error(transparent)]
    Subject(#[from] SubjectError),
    /// It is too large.
    #[error(transparent)]
    TooLarge(#[from] CodeTooLarge),
}

/// The table of a file's arguments.
#[derive(Debug, Clone)]
pub struct BuildOutput {
    /// The table.
    pub bytes: Vec<u8>,
    /// The units of whose functions it says nothing because the rest of them is missing (`-gsplit-dwarf`), and why: who finds that later has
    /// another table.
    pub missing: Vec<TypesError>,
}

/// Makes the table of a file's arguments. `debug` are its separate debug files, and with it make its key
/// ([`DebugFiles::key`]); without one, the table can be used but not kept.
///
/// # Errors
///
/// Nothing says what its functions take, or its code cannot be followed.
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
    let bytes = encode(&followed, &key)?;
    Ok(BuildOutput { bytes, missing })
}
