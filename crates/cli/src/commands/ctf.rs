//! `unspool ctf`: C types.

mod ask;
mod dump;
mod input;
mod json;
mod link;

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use unspool_ctf::{CtfError, Graph, Quirk, Section, Unit};

use crate::args::ctf::{CtfAction, CtfArgs, CtfSource};
use crate::commands::MOST_SAID;
use crate::output;
use input::Input;

pub(crate) fn run(args: &CtfArgs) -> anyhow::Result<ExitCode> {
    match &args.action {
        CtfAction::Dump(args) => dump::run(args),
        CtfAction::Type(args) => ask::about_type(args),
        CtfAction::Symbol(args) => ask::about_symbol(args),
        CtfAction::Link(args) => link::run(args),
    }
}

/// Says what is wrong with a file, up to a point.
fn report<'p>(input: &Input, problems: impl ExactSizeIterator<Item = &'p CtfError>) {
    let path = input.path().display();
    let hidden = problems.len().saturating_sub(MOST_SAID);
    for problem in problems.take(MOST_SAID) {
        output::notice(&format_args!("{path}: {problem}"));
    }
    if hidden > 0 {
        output::notice(&format_args!("{path}: {hidden} more problems"));
    }
}

/// The dictionaries of a file that are asked for.
struct Shown<'d> {
    units: Vec<Unit<'d>>,
    /// Whether all could be read wholly.
    is_clean: bool,
}

/// Whether arrays of arrays are shown as the source has them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Arrays {
    AsStored,
    AsMeant,
}

/// Has a function look at each of the files of a path, with its dictionaries.
fn each_file(
    source: &CtfSource,
    arrays: Arrays,
    mut show: impl FnMut(&Input, &Section<'_>, &Shown<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<bool> {
    let mut is_clean = true;
    let mut found = false;
    for input in Input::open(&source.file)? {
        let Some((bytes, elf)) = input
            .section()
            .with_context(|| input.path().display().to_string())?
        else {
            continue;
        };
        let section =
            Section::open(bytes, elf).with_context(|| input.path().display().to_string())?;
        let mut shown = read(&input, &section);
        if arrays == Arrays::AsMeant && !source.arrays_as_stored {
            turn_arrays(&input, &mut shown.units);
        }
        if let Some(wanted) = &source.member {
            shown.units.retain(|unit| unit.name == wanted);
            if shown.units.is_empty() {
                let names: Vec<_> = section
                    .dicts()
                    .map(|(name, _)| name)
                    .take(MOST_SAID)
                    .collect();
                bail!(
                    "{} has no dictionary {wanted:?}; it has {}",
                    input.path().display(),
                    names.join(", ")
                );
            }
        }
        found = true;
        is_clean &= shown.is_clean;
        show(&input, &section, &shown)?;
    }
    if !found {
        bail!(
            "{} has no section {}: build it with `gcc -gctf`, or put its objects' types into it with `unspool ctf link`",
            source.file.display(),
            input::SECTION
        );
    }
    Ok(is_clean)
}

/// Reads all dictionaries of a section, in its order.
fn read<'d>(input: &Input, section: &'d Section<'d>) -> Shown<'d> {
    let mut units = section.parents();
    let mut problems = section.problems.clone();
    for child in section.children(&units).collect::<Vec<_>>() {
        match child {
            Ok(child) => units.push(child),
            Err(problem) => problems.push(problem),
        }
    }
    let place = |unit: &Unit<'_>| {
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
    report(input, problems.iter());
    Shown {
        units,
        is_clean: problems.is_empty(),
    }
}

/// Shows arrays as the source has them, if they were stored the wrong way round.
fn turn_arrays(input: &Input, units: &mut [Unit<'_>]) {
    let producers = input.producers();
    let wrong = producers
        .iter()
        .find(|text| Quirk::of_producer(text) == Some(Quirk::ReversedArrays));
    let Some(wrong) = wrong else { return };
    let mut turned = false;
    for unit in units {
        // Of a child its own are turned; what it cites of the parent is found by the parent's own name.
        let graph = unit.reading.graph.with_arrays_turned();
        turned |= graph.last() != unit.reading.graph.last();
        unit.reading.graph = Arc::new(graph);
    }
    if turned {
        output::notice(&format_args!(
            "{}: {wrong} stored arrays of arrays the wrong way round (PR114186), which is put right here; --arrays-as-stored leaves it",
            input.path().display()
        ));
    }
}

/// The type of a graph that a person names: `struct node`, `node`, `size_t`.
fn named(graph: &Graph<'_>, name: &str) -> Vec<unspool_ctf::TypeId> {
    use unspool_ctf::{NameSpace, Tag};
    let words: Vec<&str> = name.split_whitespace().collect();
    let tag = [Tag::Struct, Tag::Union, Tag::Enum]
        .into_iter()
        .find(|tag| words.len() > 1 && words.first() == Some(&tag.word()));
    let name = words
        .get(usize::from(tag.is_some())..)
        .unwrap_or_default()
        .join(" ");
    let found = graph.named(&name);
    let wanted =
        found.filter(|(_, ty)| tag.is_none() || ty.name_space() == tag.map(NameSpace::Tags));
    wanted.map(|(id, _)| id).collect()
}
