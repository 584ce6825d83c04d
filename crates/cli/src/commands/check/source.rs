//! Assembly source: assembled before it is checked.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail};

/// The object file that a file of assembly source makes; `None` of anything else.
///
/// It is assembled by `$CC`, or by cc, with line numbers.
pub(crate) fn assemble(path: &Path) -> anyhow::Result<Option<Vec<u8>>> {
    match is_assembly(path) {
        true => assemble_as(path, path).map(Some),
        false => Ok(None),
    }
}

/// Whether a file is assembly source, by its name.
pub(crate) fn is_assembly(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    matches!(extension, Some("s" | "S" | "sx" | "asm"))
}

/// The object file that a text makes in the place of a file of assembly source: what it includes is looked for beside
/// that, too.
pub(crate) fn assemble_text(text: &str, in_place_of: &Path) -> anyhow::Result<Vec<u8>> {
    let folder = tempfile::tempdir().context("no folder to assemble in")?;
    let path = folder
        .path()
        .join(in_place_of.file_name().unwrap_or_default());
    fs::write(&path, text).with_context(|| path.display().to_string())?;
    assemble_as(&path, in_place_of)
}

fn assemble_as(path: &Path, in_place_of: &Path) -> anyhow::Result<Vec<u8>> {
    let compiler = env::var_os("CC").unwrap_or_else(|| "cc".into());
    let folder = tempfile::tempdir().context("no folder to assemble in")?;
    let object = folder.path().join("assembled.o");
    let output = Command::new(&compiler)
        .args(["-c", "-g", "-o"])
        .arg(&object)
        .arg("-I")
        .arg(
            in_place_of
                .parent()
                .filter(|folder| !folder.as_os_str().is_empty())
                .unwrap_or(Path::new(".")),
        )
        .arg(path)
        .output();
    let output = output.with_context(|| {
        let compiler = compiler.to_string_lossy();
        format!(
            "{}: cannot run {compiler} to assemble it: install gcc, or set CC",
            in_place_of.display()
        )
    })?;
    if !output.status.success() {
        bail!(
            "{}: it does not assemble: {}",
            in_place_of.display(),
            String::from_utf8_lossy(&output.stderr)
                .lines()
                .collect::<Vec<_>>()
                .join("; ")
        );
    }
    let bytes = fs::read(&object).with_context(|| object.display().to_string())?;
    Ok(bytes)
}
