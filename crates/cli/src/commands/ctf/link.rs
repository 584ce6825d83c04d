//! `unspool ctf link`.

use std::borrow::Cow;
use std::fs;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use rayon::prelude::*;
use unspool_c_types::{
    ARRAYS_IN_ORDER, Aliases, CtfError, CtfSection, Graph, LinkUnit, Type, TypeKind, link,
};
use unspool_dwarf_types::elf_context;

use super::ArrayView;
use super::input::{self, ArrayOrderInfo, Input, LoadedBtf, StoredTypes};
use super::target::{self, Effort};
use crate::args::ctf::CtfLinkArgs;
use crate::commands;
use crate::output::{self, ExitCodes};

pub(crate) fn run(args: &CtfLinkArgs) -> anyhow::Result<ExitCode> {
    if args.target.is_missing() {
        bail!("no output is given: write -o OUT, or --into ELF");
    }
    let sizes = args.inputs.iter().map(fs::metadata);
    let threads = target::threads_for(sizes.flatten().map(|size| size.len()).sum());
    let opened = each(threads, &args.inputs, |path| Input::open(path));
    let mut inputs = Vec::new();
    for opened in opened {
        inputs.extend(opened?);
    }
    let opened = each(threads, &inputs, open);
    let mut is_clean = true;
    let mut sections = Vec::new();
    let mut types = 0;
    for (input, opened) in inputs.iter().zip(opened) {
        if let Some((read, bytes)) = opened? {
            types += bytes;
            if let LinkInput::Ctf(section) = &read {
                is_clean &= section.problems.is_empty();
                super::report(input.path(), section.problems.iter());
            }
            sections.push((input, read));
        }
    }
    let files = sections.iter().filter_map(|(input, _)| input.elf());
    let first = files.clone().next();
    if let Some(first) = first {
        for file in files {
            target::refuse_another_machine(first, file)?;
        }
    }
    if sections.is_empty() {
        bail!(
            "none of these files has a section {} or {}: build them with `gcc -gctf`",
            input::SECTION,
            input::BTF_SECTION
        );
    }
    let (mut units, is_order_known) = units(args, &sections, threads, &mut is_clean)?;
    if let Some(path) = &args.target.into {
        let mut aliases = Aliases::default();
        aliases.add(&[elf_context(&commands::open(path)?)?]);
        target::name_aliases(&mut units, aliases);
    }
    let linked = link(&units, target::options(args.share, threads));
    // If the order is unknown, the file that receives the types may identify the compiler.
    let label = if is_order_known { ARRAYS_IN_ORDER } else { "" };
    target::write(
        &args.target,
        &linked,
        first,
        label,
        Effort::on_link(threads, types),
    )?;
    Ok(if is_clean {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(ExitCodes::FINDINGS)
    })
}

/// The results of `work` for each item, in their order.
fn each<'i, T: Sync, R: Send>(
    threads: usize,
    items: &'i [T],
    work: impl Fn(&'i T) -> R + Sync + Send,
) -> Vec<R> {
    match threads {
        1 => items.iter().map(work).collect(),
        _ => items.par_iter().map(work).collect(),
    }
}

/// The types of an input.
enum LinkInput<'i> {
    Ctf(CtfSection<'i>),
    Btf(LoadedBtf<'i>),
}

/// The types of an input and their stored size in bytes, if it has any.
fn open(input: &Input) -> anyhow::Result<Option<(LinkInput<'_>, usize)>> {
    Ok(match input.types()? {
        Some(StoredTypes::Ctf(bytes, elf)) => {
            let section = CtfSection::open(bytes, elf);
            let section = section.with_context(|| input.path().display().to_string())?;
            Some((LinkInput::Ctf(section), bytes.len()))
        }
        Some(StoredTypes::Btf(bytes, pointer_size)) => {
            let read = input.read_btf(bytes, pointer_size, None, ArrayView::AsDeclared)?;
            Some((LinkInput::Btf(read), bytes.len()))
        }
        None => None,
    })
}

/// The units of all inputs, under their final names, with arrays as in the source; and whether the
/// order of any is known.
fn units<'d>(
    args: &CtfLinkArgs,
    sections: &'d [(&Input, LinkInput<'d>)],
    threads: usize,
    is_clean: &mut bool,
) -> anyhow::Result<(Vec<LinkUnit<'d>>, bool)> {
    let read = each(threads, sections, |(input, read)| match read {
        LinkInput::Ctf(section) => {
            let mut units = section.units()?;
            let arrays = input.reverse_arrays(&mut units);
            Ok((units, arrays))
        }
        LinkInput::Btf(_) => Ok((Vec::new(), ArrayOrderInfo::default())),
    });
    let mut units = Vec::new();
    let mut is_order_known = false;
    let mut add = |name: Cow<'d, str>, graph| {
        let mut mappings = args.units.iter();
        let mapped = mappings.find(|(prefix, _)| name.starts_with(prefix));
        units.push(LinkUnit {
            name,
            child: mapped.map(|(_, to)| to.clone().into()),
            graph,
        });
    };
    for ((input, section), read) in sections.iter().zip(read) {
        if let LinkInput::Btf(btf) = section {
            *is_clean &= btf.is_clean;
            is_order_known |= btf.is_order_known;
            for graph in &btf.graphs {
                let mut graph = Graph::clone(graph);
                report_tags(input, &graph);
                graph.reduce_to_ctf();
                add(input.path().to_string_lossy(), Arc::new(graph));
            }
            continue;
        }
        let read: Result<_, CtfError> = read;
        let (read, arrays) = read.with_context(|| input.path().display().to_string())?;
        arrays.report_unknown(input.path());
        is_order_known |= !arrays.is_unknown;
        for unit in read {
            *is_clean &= unit.reading.problems.is_empty();
            super::report(input.path(), unit.reading.problems.iter());
            let graph = unit.reading.graph;
            add(graph.unit.clone().unwrap_or(unit.name.into()), graph);
        }
    }
    Ok((units, is_order_known))
}

/// Reports what CTF cannot say of BTF.
fn report_tags(input: &Input, graph: &Graph<'_>) {
    let is_tag = |ty: &Type<'_>| matches!(ty.kind, TypeKind::TypeTag { .. });
    let counts = [
        (graph.declaration_tags.len(), "tags of declarations"),
        (
            graph.types().filter(|(_, ty)| is_tag(ty)).count(),
            "tags of types",
        ),
        (graph.sections.len(), "sections"),
    ];
    let lost = counts.iter().filter(|(count, _)| *count > 0);
    let lost: Vec<_> = lost
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    if !lost.is_empty() {
        output::notice(&format_args!(
            "{}: CTF has no place for {}",
            input.path().display(),
            lost.join(", ")
        ));
    }
}
