//! The table of a file.

use unspool_check::{Declarations, Maker, Subject, SubjectError};
use unspool_module::{DebugFiles, ElfFile, Symbols, TableKey};
use unspool_types::TypesError;

use crate::encode::{TooLarge, encode};
use crate::functions::follow;
use crate::sources::prototypes;

/// Why there is no table of a file's arguments.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
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
    TooLarge(#[from] TooLarge),
}

/// The table of a file's arguments.
#[derive(Debug, Clone)]
pub struct MadeTable {
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
pub fn table_of(file: &ElfFile, debug: &DebugFiles) -> Result<MadeTable, TableError> {
    let (prototypes, missing) = prototypes(file, debug);
    if prototypes.is_empty() {
        return Err(TableError::NoTypes {
            file: file.path().to_string_lossy().into_owned(),
            missing,
        });
    }
    let declarations = Declarations::read(file)?;
    let subject = Subject::new(file, &declarations, Maker::of(file))?;
    let symbols = Symbols::new(file, debug.debug.as_deref());
    let key = debug.key(file).unwrap_or(TableKey {
        build_id: file.build_id(),
        content: [0; 20],
    });
    let followed = follow(&subject, &symbols, &prototypes);
    let bytes = encode(&followed, &key)?;
    Ok(MadeTable { bytes, missing })
}
