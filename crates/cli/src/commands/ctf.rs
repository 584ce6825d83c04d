//! `unspool ctf`: C types.

mod diff;
mod dump;
mod excuses;
mod from_dwarf;
mod input;
mod json;
mod link;
mod loaded;
mod query;
mod show;
mod target;
mod to_btf;

use std::borrow::Cow;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use unspool_c_types::{CtfSection, CtfUnit, Graph, SHARED};
use unspool_dwarf_types::SplitFiles;

use crate::args::ctf::{CtfAction, CtfArgs, CtfSource};
use crate::commands::{MAX_PROBLEMS_PRINTED, report};
use crate::output;
use input::{ArrayOrderInfo, Input, StoredTypes};

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

/// The types of a CTF or BTF dictionary.
struct NamedDict<'d> {
    name: Cow<'d, str>,
    graph: Arc<Graph<'d>>,
    /// Its source, if that is CTF.
    ctf: Option<CtfUnit<'d>>,
}

/// The requested dictionaries of a file.
struct LoadedDicts<'d> {
    dictionaries: Vec<NamedDict<'d>>,
    /// Whether the file has other dictionaries, or one with its own name.
    is_archive: bool,
    /// Whether all of them were read completely.
    is_clean: bool,
    /// The gcc that stored array dimensions in reverse, if some were corrected.
    reversed_by: Option<String>,
}

/// Whether multidimensional arrays are shown as in the source.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ArrayView {
    AsStored,
    AsDeclared,
}

/// Calls a function with each of the files of a path and its dictionaries.
fn each_file(
    inputs: &[Input],
    source: &CtfSource,
    arrays: ArrayView,
    mut show: impl FnMut(&Input, &LoadedDicts<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<bool> {
    let arrays = if source.arrays_as_stored {
        ArrayView::AsStored
    } else {
        arrays
    };
    let mut is_clean = true;
    let mut found = false;
    for input in inputs {
        let path = || input.path().display().to_string();
        let (section, base, debug);
        let splits = SplitFiles::default();
        let mut shown = match input.types()? {
            Some(StoredTypes::Ctf(bytes, elf)) => {
                section = CtfSection::open(bytes, elf).with_context(path)?;
                read(input, &section, arrays)?
            }
            Some(StoredTypes::Btf(bytes, pointer_size)) => {
                base = input.btf_base(source.base.as_deref())?;
                let read = input.read_btf(bytes, pointer_size, base.as_ref(), arrays)?;
                let dictionaries = read.graphs.into_iter().enumerate();
                let dictionaries = dictionaries.map(|(nth, graph)| NamedDict {
                    name: match nth {
                        0 => SHARED.into(),
                        _ => format!("{SHARED}#{nth}").into(),
                    },
                    graph,
                    ctf: None,
                });
                let dictionaries: Vec<_> = dictionaries.collect();
                LoadedDicts {
                    is_archive: dictionaries.len() > 1,
                    reversed_by: read.reversed_by,
                    is_clean: read.is_clean,
                    dictionaries,
                }
            }
            None => {
                let Some(file) = input.elf() else { continue };
                debug = from_dwarf::debug_files(file);
                match from_dwarf::dictionaries_of(file, &debug, &splits)? {
                    Some(read) => read,
                    None => continue,
                }
            }
        };
        if let Some(wrong) = &shown.reversed_by {
            output::notice(&format_args!(
                "{}: {wrong} stored arrays of arrays the wrong way round (PR114186): they are corrected here; --arrays-as-stored shows them as stored",
                input.path().display()
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
                bail!("{} has no dictionary {wanted:?}; it has {names}", path());
            }
        }
        found = true;
        is_clean &= shown.is_clean;
        show(input, &shown)?;
    }
    if !found {
        bail!(
            "{} has no types: neither CTF nor BTF nor DWARF of units in C: build it with `gcc -gctf` or `gcc -g`",
            source.file.display(),
        );
    }
    Ok(is_clean)
}

/// Reads all dictionaries of a section, in its order. If none is readable, the first error is the
/// result.
fn read<'d>(
    input: &Input,
    section: &'d CtfSection<'d>,
    arrays: ArrayView,
) -> anyhow::Result<LoadedDicts<'d>> {
    let (mut units, mut problems) = section.read();
    if units.is_empty() && !problems.is_empty() {
        return Err(problems.swap_remove(0)).with_context(|| input.path().display().to_string());
    }
    let place = |unit: &CtfUnit<'_>| {
        section
            .dicts()
            .position(|(_, dict)| std::ptr::eq(dict, unit.dict))
    };
    units.sort_by_cached_key(place);
    problems.extend(
        units
            .iter()
            .flat_map(|unit| unit.reading.problems.iter().cloned()),
    );
    report(input.path(), problems.iter());
    let arrays = match arrays {
        ArrayView::AsStored => ArrayOrderInfo::default(),
        ArrayView::AsDeclared => input.reverse_arrays(&mut units),
    };
    arrays.report_unknown(input.path());
    let dictionaries = units.into_iter().map(|unit| NamedDict {
        name: unit.name.into(),
        graph: Arc::clone(&unit.reading.graph),
        ctf: Some(unit),
    });
    Ok(LoadedDicts {
        dictionaries: dictionaries.collect(),
        is_archive: section.is_archive(),
        is_clean: problems.is_empty(),
        reversed_by: arrays.reversed_by,
    })
}
