//! `unspool ctf diff`.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use serde_json::json;
use unspool_ctf::{Change, Effect, Graph, Interface, diff};
use unspool_types::elf_context;

use super::input;
use super::loaded::{self, Loaded};
use crate::args::Format;
use crate::args::ctf::CtfDiffArgs;
use crate::output::{self, Failure, Layout, Plain};

pub(crate) fn run(args: &CtfDiffArgs) -> anyhow::Result<ExitCode> {
    let (changes, is_clean) = with_interface(&args.old, |old, is_old_clean| {
        with_interface(&args.new, |new, is_new_clean| {
            Ok((diff(old, new), is_old_clean && is_new_clean))
        })
    })?;
    let mut out = output::results();
    match args.format {
        Format::Text => text(&mut out, &changes)?,
        Format::Json => json(&mut out, &changes)?,
    }
    out.flush()?;
    Ok(match is_clean && count(&changes, Effect::Breaks) == 0 {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(Failure::FINDINGS),
    })
}

/// Has a function work on what a file exports, told whether all of it could be read.
fn with_interface<R>(
    path: &Path,
    work: impl FnOnce(Interface<'_, '_>, bool) -> anyhow::Result<R>,
) -> anyhow::Result<R> {
    loaded::with_types(path, |loaded| {
        let graph = loaded.one_graph();
        let (functions, objects) = exported(loaded, &graph)?;
        let interface = Interface {
            graph: &graph,
            functions: &functions,
            objects: &objects,
        };
        work(interface, loaded.is_clean)
    })
}

/// The functions and data that a file exports: those of .dynsym, else of .symtab, else all that have types.
fn exported(
    loaded: &Loaded<'_>,
    graph: &Graph<'_>,
) -> anyhow::Result<(BTreeSet<String>, BTreeSet<String>)> {
    if let Some(file) = loaded.elf {
        let elf = elf_context(file)?;
        for is_dynamic in [true, false] {
            let (functions, objects) = input::symbol_names(elf, is_dynamic);
            if !functions.is_empty() || !objects.is_empty() {
                return Ok((functions, objects));
            }
        }
    }
    let names = |symbols: &[unspool_ctf::Symbol<'_>]| {
        symbols.iter().map(|one| one.name.to_string()).collect()
    };
    Ok((names(&graph.functions), names(&graph.objects)))
}

fn count(changes: &[Change], effect: Effect) -> usize {
    changes
        .iter()
        .filter(|change| change.effect == effect)
        .count()
}

fn word(effect: Effect) -> &'static str {
    match effect {
        Effect::Breaks => "breaks",
        Effect::Compatible => "compatible",
    }
}

fn text(out: &mut dyn Write, changes: &[Change]) -> anyhow::Result<()> {
    for change in changes {
        let Change {
            effect,
            subject,
            what,
            path,
        } = change;
        writeln!(out, "{}: {} {}", word(*effect), Plain(subject), Plain(what))?;
        if !path.is_empty() && path != subject {
            writeln!(out, "    by {}", Plain(path))?;
        }
    }
    let (breaks, compatible) = (
        count(changes, Effect::Breaks),
        count(changes, Effect::Compatible),
    );
    writeln!(
        out,
        "changes that break: {breaks}, compatible: {compatible}"
    )?;
    Ok(())
}

fn json(out: &mut dyn Write, changes: &[Change]) -> anyhow::Result<()> {
    let all = changes.iter().map(|change| {
        json!({
            "effect": word(change.effect),
            "subject": change.subject,
            "what": change.what,
            "path": if change.path.is_empty() { serde_json::Value::Null } else { json!(change.path) },
        })
    });
    let body = json!({
        "breaks": count(changes, Effect::Breaks) > 0,
        "changes": all.collect::<Vec<_>>(),
    });
    Ok(output::write_document(
        out,
        Layout::Pretty,
        "ctf-diff",
        &body,
    )?)
}
