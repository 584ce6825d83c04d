//! One module per command.

pub(crate) mod annotate;
pub(crate) mod cache;
mod cc;
pub(crate) mod check;
pub(crate) mod compile;
pub(crate) mod convert;
pub(crate) mod ctf;
pub(crate) mod diff;
pub(crate) mod doctor;
mod elf_files;
pub(crate) mod expr;
pub(crate) mod gdb;
pub(crate) mod generate;
pub(crate) mod record;
mod recording;
pub(crate) mod report;
pub(crate) mod script;
pub(crate) mod show;
pub(crate) mod stack;
pub(crate) mod stats;
pub(crate) mod synth;
pub(crate) mod toolchain;
pub(crate) mod verify;
pub(crate) mod view;

use std::env;
use std::ffi::OsStr;
use std::fmt::Display;
use std::fs::{File, Permissions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};

use anyhow::{Context as _, anyhow, bail};
use clap::ValueEnum as _;
use serde_json::{Value, json};
use unspool_elf::{ElfFile, ModuleError};
use unspool_files::environment::variable;
use unspool_files::output::replace;
use unspool_files::{Input, open_input};
use unspool_table_store::{
    self as tables, CompileError, SourceError, SourceSection, SourceTable, Store, TableForm,
    TableSource,
};

use crate::args::{RowSourceArg, SectionArg, TableFormArg};
use crate::output;

impl SectionArg {
    fn to_library(self) -> TableSource {
        match self {
            SectionArg::Auto => TableSource::Auto,
            SectionArg::EhFrame => TableSource::EhFrame,
            SectionArg::DebugFrame => TableSource::DebugFrame,
            SectionArg::Sframe => TableSource::Sframe,
            SectionArg::Orc => TableSource::Orc,
        }
    }
}

impl RowSourceArg {
    /// The source of the rows to check.
    #[cfg(target_arch = "x86_64")]
    fn to_step(self) -> unspool_single_step::RowSource {
        match self.section() {
            Some(section) => unspool_single_step::RowSource::Table(section.to_library()),
            None => unspool_single_step::RowSource::Code,
        }
    }

    /// The section; `None`: rows are synthesized from the code.
    fn section(self) -> Option<SectionArg> {
        match self {
            RowSourceArg::Auto => Some(SectionArg::Auto),
            RowSourceArg::EhFrame => Some(SectionArg::EhFrame),
            RowSourceArg::DebugFrame => Some(SectionArg::DebugFrame),
            RowSourceArg::Sframe => Some(SectionArg::Sframe),
            RowSourceArg::Orc => Some(SectionArg::Orc),
            RowSourceArg::Synth => None,
        }
    }
}

/// The most problems printed of one list.
const MAX_PROBLEMS_PRINTED: usize = 20;

/// Reports a file's problems, up to a limit.
fn report(path: &Path, problems: impl ExactSizeIterator<Item = impl Display>) {
    let path = path.display();
    let hidden = problems.len().saturating_sub(MAX_PROBLEMS_PRINTED);
    for problem in problems.take(MAX_PROBLEMS_PRINTED) {
        output::notice(&format_args!("{path}: {problem}"));
    }
    if hidden > 0 {
        output::notice(&format_args!("{path}: {hidden} more problems"));
    }
}

/// The sources of tables, and the table form for walks; without the cache if the user wants that.
fn store(no_cache: bool, tables: Option<TableFormArg>) -> anyhow::Result<Store> {
    let form = match tables.map_or_else(tables_by_environment, Ok)? {
        TableFormArg::Compact => TableForm::Compact,
        TableFormArg::Native => TableForm::Native,
    };
    let store = Store::from_environment().with_form(form);
    Ok(if no_cache {
        store.without_cache()
    } else {
        store
    })
}

fn tables_by_environment() -> anyhow::Result<TableFormArg> {
    const NAME: &str = "UNSPOOL_TABLES";
    let Some(value) = variable(NAME) else {
        return Ok(TableFormArg::Compact);
    };
    let value = value.to_string_lossy();
    let tables = TableFormArg::from_str(&value, false);
    tables.map_err(|_| anyhow!("{NAME} is \"{value}\": it can be compact or native"))
}

/// The files of that name in the folders of `PATH`, in their order.
fn in_path(name: &OsStr) -> impl Iterator<Item = PathBuf> {
    let folders = variable("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = env::split_paths(&folders).collect();
    let files = folders.into_iter().map(move |folder| folder.join(name));
    files.filter(|path| path.is_file())
}

/// Why a command cannot be run. The search for it ends with a denied permission if it may not look
/// into a folder of PATH: then it was not found.
fn launch_error(program: &str, error: io::Error) -> io::Error {
    let is_in_path = || in_path(OsStr::new(program)).next().is_some();
    match error.kind() {
        io::ErrorKind::PermissionDenied if !program.contains('/') && !is_in_path() => {
            io::Error::from_raw_os_error(libc::ENOENT)
        }
        _ => error,
    }
}

/// What to do if a command cannot be run.
fn launch_remedy(program: &str, error: &io::Error) -> Option<String> {
    let path = Path::new(program);
    if path.is_dir() {
        Some("it is a folder".to_owned())
    } else if !program.contains('/') && path.is_file() {
        Some(format!("./{program} is in this folder"))
    } else if error.kind() == io::ErrorKind::PermissionDenied {
        Some("no program: `chmod +x` makes a script one".to_owned())
    } else {
        None
    }
}

/// Reads a file of text.
fn read_text(path: &Path) -> anyhow::Result<String> {
    String::from_utf8(read_bytes(path)?).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        anyhow!(
            "{}: byte {at:#x} is not UTF-8: convert the file",
            path.display()
        )
    })
}

/// Opens an ELF file.
fn open(path: &Path) -> anyhow::Result<ElfFile> {
    /// The magic bytes of `ar` archives.
    const ARCHIVES: [&[u8]; 2] = [b"!<arch>\n", b"!<thin>\n"];
    match ElfFile::open(path) {
        Err(ModuleError::NotElf { start, .. }) if ARCHIVES.contains(&&*start) => bail!(
            "{} is an archive: take its members out (`ar x`), and put them back afterwards (`ar r`)",
            path.display()
        ),
        file => Ok(file?),
    }
}

/// Reads a file's unwind table and reports its problems.
fn read(file: &ElfFile, from: SectionArg) -> anyhow::Result<SourceTable> {
    let reading = tables::read(file, from.to_library())?;
    report_problems(file, &reading);
    Ok(reading)
}

/// The sections of a table, in JSON.
fn sections(sections: &[SourceSection]) -> Value {
    let section = |section: &SourceSection| {
        json!({
            "name": section.name,
            "bytes": section.size,
            "entries": section.entries.len(),
        })
    };
    sections.iter().map(section).collect()
}

/// Reports the problems of a file's entries.
fn report_problems(file: &ElfFile, table: &SourceTable) {
    if table.table.fdes().is_empty() && file.has_arm_exception_index() {
        output::notice(&format_args!(
            "{}: the unwind table is empty; the file's ARM exception index (.ARM.exidx) is not read",
            file.path().display()
        ));
    }
    report(file.path(), table.problems.iter());
}

/// Whether a file simply has no unwind table.
fn is_missing(error: &anyhow::Error) -> bool {
    let source = error.downcast_ref();
    let source = source.or_else(|| match error.downcast_ref() {
        Some(CompileError::Source(source)) => Some(source),
        _ => None,
    });
    matches!(source, Some(SourceError::Missing { .. }))
}

/// The JSON object for a file without a report, with the error.
fn error_object(file: &Path, error: &anyhow::Error) -> Value {
    json!({ "file": file.to_string_lossy(), "error": format!("{error:#}") })
}

/// Replaces a file by [`output::replace`](replace), with its name in the error. A file that is not
/// regular is written to.
fn write(path: &Path, bytes: &[u8], permissions: Option<Permissions>) -> anyhow::Result<()> {
    write_by(path, permissions, |mut file| Ok(file.write_all(bytes)?))
}

/// The same, for output that is produced while it is written.
fn write_by<T>(
    path: &Path,
    permissions: Option<Permissions>,
    fill: impl FnOnce(&File) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    replace(path, permissions, fill).with_context(|| cannot_write(path))
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

/// Whether [`write()`] can succeed, checked before work whose result would be lost.
fn check_writable(path: &Path) -> anyhow::Result<()> {
    unspool_files::output::check_writable(path).with_context(|| cannot_write(path))
}

/// All bytes of a file or a pipe.
fn read_bytes(path: &Path) -> anyhow::Result<Vec<u8>> {
    let read = || {
        let mut bytes = Vec::new();
        match open_input(path)? {
            Input::File(mut file) => file.read_to_end(&mut bytes)?,
            Input::Stream(mut stream) => stream.read_to_end(&mut bytes)?,
        };
        io::Result::Ok(bytes)
    };
    read().with_context(|| path.display().to_string())
}

/// The command's own exit status.
fn pass_on(status: ExitStatus) -> ExitCode {
    exit_code(status).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// A command's exit status as shells report it: its exit code, or 128 plus the number of the signal
/// that killed it.
fn exit_code(status: ExitStatus) -> Option<u8> {
    use std::os::unix::process::ExitStatusExt as _;
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok())
}
