//! Object files of assembly source.

use std::error::Error;
use std::path::Path;

/// Makes object files of assembly source. This is the one thing that this crate has others do.
pub trait Assemble {
    /// The object file of a text in place of the source file at `path`.
    ///
    /// It has line numbers that name a file with the last component of `path`, and it is made with
    /// the options of that file's build. Included files are also searched beside `path`.
    ///
    /// # Errors
    ///
    /// The assembler cannot be run, or rejects the text.
    fn assemble(&self, text: &str, path: &Path) -> Result<Vec<u8>, AssembleError>;
}

/// Why there is no object file, in the assembler's words.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct AssembleError(#[from] pub Box<dyn Error + Send + Sync>);
