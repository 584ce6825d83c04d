//! The C compiler, which assembles source before it is checked.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use unspool_assembly::{Assemble, AssembleError};
use unspool_files::environment::variable;

use crate::text::words::split_words;

/// `$CC`, or cc, with the options of `$CPPFLAGS` and `$CFLAGS`.
pub(super) struct CcAssembler {
    compiler: OsString,
    options: Vec<OsString>,
}

impl Assemble for CcAssembler {
    fn assemble(&self, text: &str, path: &Path) -> Result<Vec<u8>, AssembleError> {
        let assemble = || {
            let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
            let copy = folder.path().join(path.file_name().unwrap_or_default());
            fs::write(&copy, text).with_context(|| copy.display().to_string())?;
            self.assemble_as(&copy, path)
        };
        assemble().map_err(|error| AssembleError(error.into()))
    }
}

impl CcAssembler {
    pub(super) fn from_environment() -> CcAssembler {
        let mut command = words_of_variable("CC").into_iter();
        let compiler = command.next().unwrap_or_else(|| "cc".into());
        let flags = ["CPPFLAGS", "CFLAGS"]
            .into_iter()
            .flat_map(words_of_variable);
        CcAssembler {
            compiler,
            options: command.chain(flags).collect(),
        }
    }

    /// The object file of an assembly source file, with line numbers.
    pub(super) fn assemble_file(&self, path: &Path) -> anyhow::Result<Vec<u8>> {
        check_exists(path)?;
        self.assemble_as(path, path)
    }

    /// The object file of a file in place of another. Includes are looked up in the other's folder,
    /// too.
    fn assemble_as(&self, path: &Path, in_place_of: &Path) -> anyhow::Result<Vec<u8>> {
        let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
        let object = folder.path().join("assembled.o");
        let path = as_operand(path);
        let mut options: Vec<&OsStr> = ["-c", "-g", "-o"].map(OsStr::new).to_vec();
        options.extend([
            object.as_os_str(),
            "-I".as_ref(),
            folder_of(in_place_of).as_os_str(),
            path.as_os_str(),
        ]);
        self.compile(in_place_of, "assemble", &options)?;
        match fs::read(&object) {
            Err(error) if error.kind() == ErrorKind::NotFound => bail!(
                "{}: not an assembly source file for {} (expected .s or .S): if it is for another assembler, assemble it first (NASM: nasm -f elf64 -g), and check the object file",
                in_place_of.display(),
                self.compiler.to_string_lossy(),
            ),
            bytes => bytes.context("cannot read the object file"),
        }
    }

    /// Links a source file, an object file or an archive to a program, alone or with one other
    /// source file. Its function `entry` is the entry point. The program keeps its relocations.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn link(
        &self,
        path: &Path,
        entry: &str,
        program: &Path,
        other: Option<&Path>,
    ) -> anyhow::Result<()> {
        let entry = format!("-Wl,--entry={entry},--unresolved-symbols=ignore-all,--emit-relocs");
        let operand = as_operand(path);
        let mut options: Vec<&OsStr> = ["-g", "-no-pie", "-nostartfiles", &entry, "-I"]
            .map(OsStr::new)
            .to_vec();
        options.extend([
            folder_of(path).as_os_str(),
            operand.as_os_str(),
            "-o".as_ref(),
            program.as_os_str(),
        ]);
        options.extend(other.map(Path::as_os_str));
        self.compile(path, "link", &options)
    }

    /// Runs the compiler on a file, with these options behind the user's.
    fn compile(&self, file: &Path, what: &str, options: &[&OsStr]) -> anyhow::Result<()> {
        let compiler = self.compiler.to_string_lossy();
        let mut command = Command::new(&self.compiler);
        let output = command.args(&self.options).args(options).output();
        let output = output.with_context(|| {
            let file = file.display();
            format!("{file}: cannot run {compiler} to {what} it: install gcc, or set CC")
        })?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let said = options
                .iter()
                .fold(said, |said, option| with_given_path(&said, option, file));
            let said: Vec<&str> = said.lines().collect();
            let said = if said.is_empty() {
                String::new()
            } else {
                format!(": {}", said.join("; "))
            };
            bail!(
                "{}: cannot {what} it (CPPFLAGS and CFLAGS give options): {compiler} ended with {}{said}",
                file.display(),
                output.status,
            );
        }
        Ok(())
    }
}

/// Fails if there is no such file, with a message that does not depend on the compiler.
pub(super) fn check_exists(path: &Path) -> anyhow::Result<()> {
    fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(())
}

/// The folder of a file.
fn folder_of(path: &Path) -> &Path {
    let parent = path.parent();
    let parent = parent.filter(|folder| !folder.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
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
fn as_operand(path: &Path) -> PathBuf {
    if path.as_os_str().as_bytes().starts_with(b"-") {
        Path::new(".").join(path)
    } else {
        path.to_path_buf()
    }
}

/// The words of an environment variable.
fn words_of_variable(name: &str) -> Vec<OsString> {
    let value = variable(name).unwrap_or_default();
    split_words(value.as_bytes())
}
