//! Assembly source: assembled before it is checked.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use unspool_assembly::AssemblySource;
use unspool_elf::{DebugFiles, ElfFile, Lines, SearchRoots};

use crate::text::words::split_words;

/// The object file assembled from an assembly source file; `None` for any other file.
///
/// It is assembled by `$CC`, or by cc, with the options of `$CPPFLAGS` and `$CFLAGS` and line
/// numbers.
pub(crate) fn assemble(path: &Path) -> anyhow::Result<Option<Vec<u8>>> {
    match is_assembly(path) {
        true => {
            fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
            assemble_as(path, path).map(Some)
        }
        false => Ok(None),
    }
}

/// The line numbers of a file that was assembled.
pub(super) fn lines(file: &Arc<ElfFile>) -> Lines {
    let debug = DebugFiles::locate(file, &SearchRoots::from_environment());
    Lines::new(Arc::clone(file), &debug, &[])
}

/// Whether a file is assembly source, by its name.
pub(crate) fn is_assembly(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    matches!(extension, Some("s" | "S" | "sx" | "asm"))
}

/// The lines of assembly source; a file name ending in `.S` means that a preprocessor reads it.
pub(crate) fn parsed(path: &Path, text: &str) -> AssemblySource {
    let extension = path.extension().and_then(|extension| extension.to_str());
    match extension {
        Some("S" | "sx") => AssemblySource::preprocessed(text),
        _ => AssemblySource::new(text),
    }
}

/// The object file of a text in place of an assembly source file. Includes are looked up in that
/// file's folder, too.
pub(crate) fn assemble_text(text: &str, in_place_of: &Path) -> anyhow::Result<Vec<u8>> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let path = folder
        .path()
        .join(in_place_of.file_name().unwrap_or_default());
    fs::write(&path, text).with_context(|| path.display().to_string())?;
    assemble_as(&path, in_place_of)
}

fn assemble_as(path: &Path, in_place_of: &Path) -> anyhow::Result<Vec<u8>> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let object = folder.path().join("assembled.o");
    let parent = in_place_of
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let path = as_operand(path);
    let mut options: Vec<&OsStr> = ["-c", "-g", "-o"].map(OsStr::new).to_vec();
    options.extend([
        object.as_os_str(),
        "-I".as_ref(),
        parent.unwrap_or(Path::new(".")).as_os_str(),
        path.as_os_str(),
    ]);
    compile(in_place_of, "assemble", &options)?;
    match fs::read(&object) {
        Err(error) if error.kind() == ErrorKind::NotFound => bail!(
            "{}: not an assembly source file for {} (expected .s or .S): if it is for another assembler, assemble it first (NASM: nasm -f elf64 -g), and check the object file",
            in_place_of.display(),
            compiler().0.to_string_lossy(),
        ),
        bytes => bytes.context("cannot read the object file"),
    }
}

/// Runs `$CC`, or cc, on a file, with the options of `$CPPFLAGS` and `$CFLAGS` before others.
pub(super) fn compile(file: &Path, what: &str, options: &[&OsStr]) -> anyhow::Result<()> {
    let (compiler, arguments) = compiler();
    let flags = ["CPPFLAGS", "CFLAGS"].into_iter().flat_map(of_variable);
    let output = Command::new(&compiler)
        .args(arguments.into_iter().chain(flags))
        .args(options)
        .output();
    let output = output.with_context(|| {
        let compiler = compiler.to_string_lossy();
        format!(
            "{}: cannot run {compiler} to {what} it: install gcc, or set CC",
            file.display()
        )
    })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let said = options
            .iter()
            .fold(said, |said, option| with_given_path(&said, option, file));
        let said: Vec<&str> = said.lines().collect();
        let said = match said.is_empty() {
            true => String::new(),
            false => format!(": {}", said.join("; ")),
        };
        bail!(
            "{}: cannot {what} it (CPPFLAGS and CFLAGS give options): {} ended with {}{said}",
            file.display(),
            compiler.to_string_lossy(),
            output.status,
        );
    }
    Ok(())
}

/// A compiler's message, with the original file's name in place of the temporary file's.
fn with_given_path(said: &str, option: &OsStr, file: &Path) -> String {
    let path = Path::new(option);
    let is_made = path.starts_with(env::temp_dir()) && path.file_name() == file.file_name();
    match option.to_str().filter(|_| is_made) {
        Some(made) => said.replace(made, &file.to_string_lossy()),
        None => said.to_owned(),
    }
}

/// A path that no program takes for an option.
pub(super) fn as_operand(path: &Path) -> PathBuf {
    match path.as_os_str().as_bytes().starts_with(b"-") {
        true => Path::new(".").join(path),
        false => path.to_path_buf(),
    }
}

/// `$CC`, or cc, and its arguments.
fn compiler() -> (OsString, Vec<OsString>) {
    let mut command = of_variable("CC").into_iter();
    let compiler = command.next().unwrap_or_else(|| "cc".into());
    (compiler, command.collect())
}

/// The words of an environment variable.
fn of_variable(name: &str) -> Vec<OsString> {
    let value = env::var_os(name).unwrap_or_default();
    split_words(value.as_bytes())
}
