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
    let extension = path.extension().and_then(|extension| extension.to_str());
    if !matches!(extension, Some("s" | "S" | "sx" | "asm")) {
        return Ok(None);
    }
    let compiler = env::var_os("CC").unwrap_or_else(|| "cc".into());
    let folder = tempfile::tempdir().context("no folder to assemble in")?;
    let object = folder.path().join("assembled.o");
    let output = Command::new(&compiler)
        .args(["-c", "-g", "-o"])
        .arg(&object)
        .arg(path)
        .output();
    let output = output.with_context(|| {
        let compiler = compiler.to_string_lossy();
        format!(
            "{}: cannot run {compiler} to assemble it: install gcc, or set CC",
            path.display()
        )
    })?;
    if !output.status.success() {
        bail!(
            "{}: it does not assemble: {}",
            path.display(),
            String::from_utf8_lossy(&output.stderr)
                .lines()
                .collect::<Vec<_>>()
                .join("; ")
        );
    }
    let bytes = fs::read(&object).with_context(|| object.display().to_string())?;
    Ok(Some(bytes))
}
