//! Annotating a whole text, and the proof of the result.

use std::path::Path;
use std::sync::Arc;

use unspool_elf::{DebugFiles, ElfFile, Lines, ModuleError};
use unspool_rows::Vaddr;
use unspool_table_store::{self as tables, SourceError};

use crate::assemble::{Assemble, AssembleError};
use crate::directives::RegisterSyntax;
use crate::plan::DirectivePlan;
use crate::refusal::AnnotateRefusal;
use crate::source::AssemblySource;

/// A text with directives.
#[derive(Debug, Clone)]
pub struct Annotated {
    /// The text.
    pub text: String,
    /// The added lines in the format of `diff -u`; empty if there are none.
    pub diff: String,
    /// The directives, and the functions without any.
    pub plan: DirectivePlan,
    /// Whether the text, assembled, has the planned rows; else the first instruction with another.
    pub proof: Result<(), AnnotateRefusal>,
}

/// Why a text cannot be annotated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AnnotateError {
    /// It does not assemble.
    #[error(transparent)]
    Assemble(#[from] AssembleError),
    /// It does not assemble with the directives.
    #[error("with directives")]
    AssembleAnnotated(#[source] AssembleError),
    /// The assembler's output is not an object file.
    #[error(transparent)]
    Object(#[from] ModuleError),
    /// The object file's table cannot be read.
    #[error(transparent)]
    Table(#[from] SourceError),
}

/// Writes directives for all functions of the text of a source file that have none. Assembles the
/// text twice.
///
/// # Errors
///
/// It does not assemble, or the object file cannot be read.
pub fn annotate(
    path: &Path,
    text: &str,
    assembler: &dyn Assemble,
) -> Result<Annotated, AnnotateError> {
    let before = Arc::new(ElfFile::from_bytes(path, assembler.assemble(text, path)?)?);
    let lines = Lines::new(Arc::clone(&before), &DebugFiles::default(), &[]);
    let mut source = AssemblySource::for_path(path, text);
    let plan = DirectivePlan::new(
        &before,
        &tables::read_if_any(&before)?,
        &source,
        RegisterSyntax::detect(text),
        |address| line_of(&lines, path, address),
    );
    plan.write_into(&mut source);
    let text = source.to_string();
    let object = assembler.assemble(&text, path);
    let object = object.map_err(AnnotateError::AssembleAnnotated)?;
    let after = ElfFile::from_bytes(path, object)?;
    Ok(Annotated {
        proof: plan.verify(&after, &tables::read_if_any(&after)?),
        diff: source.diff(&path.to_string_lossy()),
        text,
        plan,
    })
}

/// The line of a source file for the instruction at an address; `None` if it is from another file.
/// Folders do not count: the text may have been assembled from another one.
#[must_use]
pub fn line_of(lines: &Lines, path: &Path, address: Vaddr) -> Option<u32> {
    let (file, line) = lines.line(address)?;
    let is_own = Path::new(&file).file_name() == path.file_name();
    is_own.then_some(line)
}
