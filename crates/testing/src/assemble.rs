//! Assembly source, assembled.

use std::fs;
use std::path::Path;

use crate::command::{Finish as _, tool};
use crate::folder::Folder;

/// The object file of a text in place of a source file, by gcc with line numbers and these options.
/// Includes are looked up in that file's folder.
///
/// # Errors
///
/// gcc's messages.
pub fn assemble(text: &str, path: &Path, options: &[&str]) -> Result<Vec<u8>, String> {
    let folder = Folder::new();
    let source = folder.join(path.file_name().unwrap());
    fs::write(&source, text).unwrap();
    let object = folder.join("assembled.o");
    let mut gcc = tool("gcc");
    if let Some(beside) = path.parent().filter(|beside| beside.is_dir()) {
        gcc.arg("-I").arg(beside);
    }
    gcc.args(["-c", "-g"]).args(options).arg("-o");
    let output = gcc.args([&object, &source]).finish();
    if output.status.success() {
        Ok(fs::read(&object).unwrap())
    } else {
        Err(output.err)
    }
}
