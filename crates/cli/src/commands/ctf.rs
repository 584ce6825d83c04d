//! `unspool ctf`: C types.

mod diff;
mod dump;
mod from_dwarf;
mod json;
mod link;
mod query;
mod show;
mod target;
mod to_btf;

use std::fmt::Display;
use std::path::Path;
use std::process::ExitCode;

use anyhow::bail;
use unspool_dwarf_types::{
    ArrayView, LoadedDicts, LoadedTypes, TypeFile, TypeFileError, TypeLoader, TypesNotice,
};

use crate::args::ctf::{CtfAction, CtfArgs, CtfSource};
use crate::commands::MAX_PROBLEMS_PRINTED;
use crate::output;

pub(crate) fn run(args: &CtfArgs) -> anyhow::Result<ExitCode> {
    match &args.action {
        CtfAction::Dump(args) => dump::run(args),
        CtfAction::Type(args) => query::about_type(args),
        CtfAction::Symbol(args) => query::about_symbol(args),
        CtfAction::Show(args) => show::run(args),
        CtfAction::Link(args) => link::run(args),
        CtfAction::FromDwarf(args) => from_dwarf::run(args),
        CtfAction::ToBtf(args) => to_btf::run(args),
        CtfAction::Diff(args) => diff::run(args),
    }
}

/// Loads types with all available threads, and prints notices.
fn loader() -> TypeLoader<'static> {
    TypeLoader {
        threads: unspool_parallel::processors(),
        ..TypeLoader::new(&print_notice)
    }
}

fn print_notice(notice: TypesNotice<'_>) {
    each_line(notice, &mut |line| output::notice(line));
}

/// Calls a function with the lines of a notice. Of many faults, the first and their number.
fn each_line(notice: TypesNotice<'_>, say: &mut dyn FnMut(&dyn Display)) {
    let TypesNotice::Faults { file, faults } = notice else {
        return say(&notice);
    };
    let file = file.display();
    for fault in (0..MAX_PROBLEMS_PRINTED).map_while(|number| faults.get(number)) {
        say(&format_args!("{file}: {fault}"));
    }
    let hidden = faults.count().saturating_sub(MAX_PROBLEMS_PRINTED);
    if hidden > 0 {
        say(&format_args!("{file}: {hidden} more problems"));
    }
}

/// Calls a function with all types of a file: of its CTF, else of its BTF, else of its DWARF.
fn with_types<R>(
    path: &Path,
    base: Option<&Path>,
    work: impl FnOnce(&LoadedTypes<'_>) -> anyhow::Result<R>,
) -> anyhow::Result<R> {
    let loader = TypeLoader { base, ..loader() };
    loader.types(path, work)?
}

/// Calls a function with each of the files of a path and its dictionaries.
fn each_file(
    files: &[TypeFile],
    source: &CtfSource,
    arrays: ArrayView,
    mut show: impl FnMut(&TypeFile, &LoadedDicts<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<bool> {
    let loader = TypeLoader {
        base: source.base.as_deref(),
        arrays: if source.arrays_as_stored {
            ArrayView::AsStored
        } else {
            arrays
        },
        ..loader()
    };
    let mut is_clean = true;
    let mut found = false;
    for file in files {
        let shown = loader.dictionaries(file, |mut shown| {
            let path = file.path().display();
            if let Some(wrong) = &shown.reversed_by {
                output::notice(&format_args!(
                    "{path}: {wrong} stored arrays of arrays the wrong way round (PR114186): they are corrected here; --arrays-as-stored shows them as stored",
                ));
            }
            if let Some(wanted) = &source.member {
                let names: Vec<_> = shown.dictionaries.iter().map(|one| &*one.name).collect();
                let names = names
                    .get(..MAX_PROBLEMS_PRINTED)
                    .unwrap_or(&names)
                    .join(", ");
                shown.dictionaries.retain(|one| one.name == *wanted);
                if shown.dictionaries.is_empty() {
                    bail!("{path} has no dictionary {wanted:?}; it has {names}");
                }
            }
            is_clean &= shown.is_clean;
            show(file, &shown)
        });
        if let Some(shown) = shown? {
            shown?;
            found = true;
        }
    }
    if !found {
        let file = source.file.clone();
        bail!(
            "{}: build it with `gcc -gctf` or `gcc -g`",
            TypeFileError::NoTypes { file }
        );
    }
    Ok(is_clean)
}
