//! Programs that tests build and run.

use std::fs;
use std::ops::Deref;
use std::os::unix::fs::{PermissionsExt as _, chown};
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

/// Fails unless a program needs no more of a stack than a table of a document in `docs` says, for each function that it
/// names without an argument: then it is run with the name, and prints bytes, a column of the table a line.
///
/// # Errors
///
/// It needs more, or fails; a function is not in the table.
pub fn check_stack_table(
    document: &str,
    run: impl Fn(&[&str]) -> Result<String, Error>,
) -> Result<(), Error> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../docs")
        .join(document);
    let text = fs::read_to_string(path)?;
    let names = run(&[])?;
    if names.is_empty() {
        return Err("the program names no function".into());
    }
    for name in names.lines() {
        let row = text
            .lines()
            .find_map(|line| line.strip_prefix(&format!("| `{name}` | ")));
        let row = row.ok_or_else(|| format!("docs/{document}: no row of `{name}`"))?;
        let row = row.trim_end_matches(" |").replace(',', "");
        let needed = run(&[name])?;
        let (mut most, mut lines) = (row.split(" | "), needed.lines());
        while let (Some(needed), Some(most)) = (lines.next(), most.next()) {
            if needed.parse::<u32>()? > most.parse::<u32>()? {
                return Err(format!("{name} needs {needed} bytes of stack, of {most}").into());
            }
        }
    }
    Ok(())
}

/// The user `nobody`.
pub const NOBODY: u32 = 65534;

/// A new folder of a user's that all can come to, for tests with two users. It goes with the value.
#[derive(Debug)]
pub struct UserFolder(PathBuf);

impl UserFolder {
    /// In the folder for temporary files.
    ///
    /// # Errors
    ///
    /// The caller is not root.
    pub fn new(owner: u32) -> Result<UserFolder, Error> {
        let folder = UserFolder(scratch(&std::env::temp_dir(), "unspool-user"));
        fs::create_dir(&folder.0)?;
        fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o755))?;
        match chown(&folder.0, Some(owner), Some(owner)) {
            Ok(()) => Ok(folder),
            Err(error) => Err(format!("a test with two users: run it as root: {error}").into()),
        }
    }

    /// Copies a file there, with this mode.
    ///
    /// # Errors
    ///
    /// It cannot be copied.
    pub fn copy(&self, file: &Path, name: &str, mode: u32) -> Result<PathBuf, Error> {
        let copy = self.0.join(name);
        fs::copy(file, &copy)?;
        fs::set_permissions(&copy, fs::Permissions::from_mode(mode))?;
        Ok(copy)
    }
}

impl Deref for UserFolder {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for UserFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0); // it is in the way of nobody
    }
}
