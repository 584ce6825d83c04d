//! Programs that tests build and run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::Error;

/// A path in `folder` that nobody else uses.
#[must_use]
pub fn scratch(folder: &Path, name: &str) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    folder.join(format!("{name}-{}-{count}", std::process::id()))
}

/// Has `compiler` make a program of a source, with `libraries` behind it: at a path in `folder` that nobody
/// else uses.
///
/// # Errors
///
/// It does not compile or link.
pub fn build(
    mut compiler: Command,
    source: &Path,
    libraries: &[String],
    folder: &Path,
) -> Result<PathBuf, Error> {
    let name = source.file_stem().ok_or("a source without a name")?;
    let program = scratch(folder, &name.to_string_lossy());
    compiler.arg("-o").arg(&program).arg(source).args(libraries);
    match compiler.status()?.success() {
        true => Ok(program),
        false => Err(format!("it does not compile: {compiler:?}").into()),
    }
}

/// A script that has GNU ld leave out `.eh_frame`, in `folder`: what gcc takes behind `-Wl,-T,`. With `-Wa,--gsframe` it makes
/// a program that has `.sframe` only.
///
/// # Errors
///
/// It cannot be written.
pub fn without_eh_frame(folder: &Path) -> Result<String, Error> {
    let script = scratch(folder, "without-eh-frame");
    let text = "SECTIONS { /DISCARD/ : { *(.eh_frame) } } INSERT BEFORE .text;\n";
    fs::write(&script, text)?;
    Ok(format!("-Wl,-T,{}", script.display()))
}

/// What a command prints.
///
/// # Errors
///
/// It does not succeed; the message has all that it prints.
pub fn stdout(command: &mut Command) -> Result<String, Error> {
    let output = command.output()?;
    let Output { status, stdout, .. } = output;
    let stdout = String::from_utf8(stdout)?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    match status.success() {
        true => Ok(stdout),
        false => Err(format!("{command:?}: {status}\n{stdout}\n{stderr}").into()),
    }
}
