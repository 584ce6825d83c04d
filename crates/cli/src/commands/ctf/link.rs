//! `unspool ctf link`.

use std::process::ExitCode;

use anyhow::{Context as _, bail};
use rayon::prelude::*;
use unspool_ctf::{ARRAYS_IN_ORDER, Aliases, CtfError, LinkUnit, Section, link};
use unspool_types::elf_context;

use super::input::{self, Input};
use super::target;
use crate::args::ctf::CtfLinkArgs;
use crate::commands;
use crate::output::Failure;

pub(crate) fn run(args: &CtfLinkArgs) -> anyhow::Result<ExitCode> {
    if args.target.is_missing() {
        bail!("say where the types go: -o OUT, or --into ELF");
    }
    let opened: Vec<_> = args
        .inputs
        .par_iter()
        .map(|path| Input::open(path))
        .collect();
    let mut inputs = Vec::new();
    for opened in opened {
        inputs.extend(opened?);
    }
    let opened: Vec<_> = inputs.par_iter().map(open).collect();
    let mut is_clean = true;
    let mut sections = Vec::new();
    for (input, opened) in inputs.iter().zip(opened) {
        if let Some(section) = opened? {
            is_clean &= section.problems.is_empty();
            super::report(input.path(), section.problems.iter());
            sections.push((input, section));
        }
    }
    let files = sections.iter().filter_map(|(input, _)| input.elf());
    let first = files.clone().next();
    for file in files {
        first.map_or(Ok(()), |first| target::refuse_another_machine(first, file))?;
    }
    if sections.is_empty() {
        bail!(
            "none of these files has a section {}: build them with `gcc -gctf`",
            input::SECTION
        );
    }
    let (mut units, is_order_known) = units(args, &sections, &mut is_clean)?;
    if let Some(path) = &args.target.into {
        let mut aliases = Aliases::default();
        aliases.add(&[elf_context(&commands::open(path)?)?]);
        target::name_aliases(&mut units, aliases);
    }
    let linked = link(&units, target::options(args.share));
    // Where nothing is known, the file that they are put into may tell.
    let label = if is_order_known { ARRAYS_IN_ORDER } else { "" };
    target::write(&args.target, &linked, first, label)?;
    Ok(if is_clean {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(Failure::FINDINGS)
    })
}

/// The types of an input, if it has any.
fn open(input: &Input) -> anyhow::Result<Option<Section<'_>>> {
    let Some((bytes, elf)) = input.section()? else {
        return Ok(None);
    };
    let section = Section::open(bytes, elf);
    section
        .map(Some)
        .with_context(|| input.path().display().to_string())
}

/// The units of all inputs, under the names that they are to have, with arrays as the source has them; and whether it is known of any how they were stored.
fn units<'d>(
    args: &CtfLinkArgs,
    sections: &'d [(&Input, Section<'d>)],
    is_clean: &mut bool,
) -> anyhow::Result<(Vec<LinkUnit<'d>>, bool)> {
    let read: Vec<_> = sections
        .par_iter()
        .map(|(input, section)| {
            let units = section.units()?;
            let meant = input.as_meant(&units);
            Ok((units, meant))
        })
        .collect();
    let mut units = Vec::new();
    let mut is_order_known = false;
    for ((input, _), read) in sections.iter().zip(read) {
        let read: Result<_, CtfError> = read;
        let (read, meant) = read.with_context(|| input.path().display().to_string())?;
        meant.tell_unknown(input.path());
        is_order_known |= meant.is_known;
        for (unit, graph) in read.into_iter().zip(meant.graphs) {
            *is_clean &= unit.reading.problems.is_empty();
            super::report(input.path(), unit.reading.problems.iter());
            let name = graph.unit.clone().unwrap_or(unit.name.into());
            let mut mappings = args.units.iter();
            let mapped = mappings.find(|(prefix, _)| name.starts_with(prefix));
            units.push(LinkUnit {
                name,
                child: mapped.map(|(_, to)| to.clone().into()),
                graph,
            });
        }
    }
    Ok((units, is_order_known))
}
