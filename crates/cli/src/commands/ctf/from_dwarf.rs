//! `unspool ctf from-dwarf`.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::bail;
use unspool_c_types::{
    ARRAYS_IN_ORDER, Aliases, Enumerator, LinkOutput, LinkUnit, SHARED, TypeKind, link,
};
use unspool_dwarf_types::{ProgramTypes, SplitFiles, TypesError, elf_context};
use unspool_elf::{DebugFiles, ElfFile, SearchRoots};

use super::{LoadedDicts, NamedDict, dump, target};
use crate::args::ctf::{CtfFromDwarfArgs, ShareTypes};
use crate::commands;
use crate::output::{self, EscapedText, ExitCodes};

pub(crate) fn run(args: &CtfFromDwarfArgs) -> anyhow::Result<ExitCode> {
    let file = commands::open(&args.file)?;
    let debug = debug_files(&file);
    let splits = SplitFiles::default();
    let program = read(&file, &debug, &splits)?;
    if program.units.is_empty() {
        bail!(
            "{} has no DWARF of units in C: build it with `gcc -g`, or install its debug symbols",
            args.file.display()
        );
    }
    let is_read = program.problems.is_empty();
    let aliases = aliases(&file, &debug)?;
    let linked = linked(program, aliases, args);
    let lost = unrepresentable(&linked);
    for lost in &lost {
        output::notice(&format_args!("{}: {lost}", args.file.display()));
    }
    if args.target.is_missing() {
        let mut out = output::text();
        for (name, graph) in dictionaries(&linked) {
            if !linked.children.is_empty() {
                writeln!(out, "/* {} */\n", EscapedText(name))?;
            }
            dump::print_c(&mut out, graph)?;
        }
        out.flush()?;
    }
    target::write(
        &args.target,
        &linked,
        Some(&file),
        ARRAYS_IN_ORDER,
        target::Effort::all(),
    )?;
    Ok(if is_read && lost.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(ExitCodes::FINDINGS)
    })
}

fn linked<'a>(
    program: ProgramTypes<'a>,
    aliases: Aliases,
    args: &CtfFromDwarfArgs,
) -> LinkOutput<'a> {
    let mut units = units(program, aliases, |_| true);
    for unit in &mut units {
        Arc::make_mut(&mut unit.graph).reduce_to_ctf();
    }
    link(&units, target::options(args.share, target::threads()))
}

/// The types of units, with the functions that they define: the defining unit describes a function
/// best. Declarations without a definition in any unit are kept if requested. Aliases have the
/// types of their targets.
pub(super) fn units<'a>(
    program: ProgramTypes<'a>,
    aliases: Aliases,
    is_wanted: impl Fn(&str) -> bool,
) -> Vec<LinkUnit<'a>> {
    let entries = program.units.iter().flat_map(|unit| &unit.entries);
    let defined: HashSet<Cow<'a, str>> = entries.map(|(_, name, _)| name.clone()).collect();
    let units = program.units.into_iter().map(|unit| {
        let own: HashSet<&str> = unit.entries.iter().map(|(_, name, _)| &**name).collect();
        let mut graph = Arc::unwrap_or_clone(unit.graph);
        graph.functions.retain(|symbol| {
            let name = &*symbol.name;
            own.contains(name) || (!defined.contains(name) && is_wanted(name))
        });
        LinkUnit::new(Arc::new(graph))
    });
    let mut units: Vec<_> = units.collect();
    target::name_aliases(&mut units, aliases);
    units
}

/// The types of a file's DWARF as dictionaries: one of shared types, and one for each unit that has
/// others. With names of parameters, which CTF lacks. `None` without DWARF of units in C.
pub(super) fn dictionaries_of<'f>(
    file: &'f ElfFile,
    debug: &'f DebugFiles,
    splits: &'f SplitFiles,
) -> anyhow::Result<Option<LoadedDicts<'f>>> {
    let program = read(file, debug, splits)?;
    if program.units.is_empty() {
        return Ok(None);
    }
    let is_clean = program.problems.is_empty();
    let units = units(program, aliases(file, debug)?, |_| true);
    let linked = link(
        &units,
        target::options(ShareTypes::Unconflicted, target::threads()),
    );
    let children = linked.children.into_iter();
    let children = children.map(|(name, graph)| (name, Arc::new(graph)));
    let all = std::iter::once((Cow::Borrowed(SHARED), linked.shared)).chain(children);
    let dictionaries: Vec<_> = all
        .map(|(name, graph)| NamedDict {
            name,
            graph,
            ctf: None,
        })
        .collect();
    Ok(Some(LoadedDicts {
        is_archive: dictionaries.len() > 1,
        dictionaries,
        is_clean,
        reversed_by: None,
    }))
}

fn dictionaries<'l, 'a>(
    output: &'l LinkOutput<'a>,
) -> impl Iterator<Item = (&'l str, &'l unspool_c_types::Graph<'a>)> {
    let children = output.children.iter();
    let children = children.map(|(name, graph)| (&**name, graph));
    std::iter::once((SHARED, &*output.shared)).chain(children)
}

/// Types that CTF cannot represent.
fn unrepresentable(output: &LinkOutput<'_>) -> Vec<String> {
    let mut lost = Vec::new();
    for (_, graph) in dictionaries(output) {
        for (id, ty) in graph.types() {
            let TypeKind::Enum { enumerators, .. } = &ty.kind else {
                continue;
            };
            let is_lost = |one: &&Enumerator<'_>| i32::try_from(one.value).is_err();
            lost.extend(enumerators.iter().filter(is_lost).map(|one| {
                let ty = graph.declare(id, "");
                format!(
                    "{ty}: {} is {}; CTF has only its low 32 bits",
                    one.name, one.value
                )
            }));
        }
    }
    lost
}

/// The aliases among the symbols of a file and its debug file.
pub(super) fn aliases(file: &ElfFile, debug: &DebugFiles) -> anyhow::Result<Aliases> {
    let files = std::iter::once(file).chain(debug.debug.as_deref());
    let files: Vec<_> = files.map(elf_context).collect::<Result<_, _>>()?;
    let mut aliases = Aliases::default();
    aliases.add(&files);
    Ok(aliases)
}

/// The separate debug files of a file; reports the ones that do not match.
pub(super) fn debug_files(file: &ElfFile) -> DebugFiles {
    let debug = DebugFiles::locate(file, &SearchRoots::from_environment());
    for rejected in &debug.rejected {
        output::notice(rejected);
    }
    debug
}

/// The types in the DWARF of a file or its debug files. Reports its problems.
pub(super) fn read<'f>(
    file: &'f ElfFile,
    debug: &'f DebugFiles,
    splits: &'f SplitFiles,
) -> anyhow::Result<ProgramTypes<'f>> {
    let program = unspool_dwarf_types::read_types(file, debug, splits)?;
    let source = debug.debug.as_deref().unwrap_or(file);
    report(source, &program);
    let mut problems = program.problems.iter();
    let is_split = problems.any(|problem| matches!(problem, TypesError::Split { .. }));
    if program.units.is_empty() && is_split {
        bail!(
            "{0}: its types are in split DWARF files (-gsplit-dwarf), which were not found: neither where the compiler wrote them, nor beside it, nor packed in {0}.dwp",
            file.path().display()
        );
    }
    Ok(program)
}

/// Reports problems of the debug information, and the parts that are left out.
fn report(file: &ElfFile, program: &ProgramTypes<'_>) {
    let path = file.path().display();
    let mut languages: BTreeMap<&str, usize> = BTreeMap::new();
    for unit in &program.skipped_units {
        *languages.entry(&unit.language).or_default() += 1;
    }
    for (language, count) in languages {
        let units = if count == 1 {
            "1 unit is"
        } else {
            &format!("{count} units are")
        };
        output::notice(&format_args!("{path}: {units} left out: {language}, not C"));
    }
    super::report(file.path(), program.problems.iter());
}
