//! `unspool ctf diff`.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use serde_json::json;
use unspool_c_types::{Compatibility, Graph, Interface, InterfaceChange, TypedSymbol, diff};
use unspool_dwarf_types::elf_context;
use unspool_elf::ElfFile;

use super::input::SymbolNames;
use super::loaded::{self, LoadedTypes};
use crate::args::Format;
use crate::args::ctf::CtfDiffArgs;
use crate::output::{self, EscapedText, ExitCodes};

pub(crate) fn run(args: &CtfDiffArgs) -> anyhow::Result<ExitCode> {
    let base = args.base.as_deref();
    let new_base = args.new_base.as_deref().or(base);
    let (changes, is_clean) = loaded::with_types(&args.old, base, |old| {
        loaded::with_types(&args.new, new_base, |new| {
            let (before, after) = (
                InterfaceVersion::new(old, &args.old)?,
                InterfaceVersion::new(new, &args.new)?,
            );
            let exports = [before.exports(&after), after.exports(&before)];
            let [one, two] = &exports;
            let changes = diff(before.interface(one), after.interface(two));
            Ok((changes, old.is_clean && new.is_clean))
        })
    })?;
    match args.format {
        Format::Text => {
            let mut out = output::text();
            text(&mut out, &changes)?;
            out.flush()?;
        }
        Format::Json => json(&changes)?,
    }
    Ok(
        if is_clean && count(&changes, Compatibility::Breaking) == 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(ExitCodes::FINDINGS)
        },
    )
}

/// One of the two versions.
struct InterfaceVersion<'d> {
    graph: Graph<'d>,
    /// Its exports; `None` if unknown, as in a bare CTF or BTF file.
    exports: Option<SymbolNames>,
}

impl<'d> InterfaceVersion<'d> {
    fn new(loaded: &LoadedTypes<'d>, path: &Path) -> anyhow::Result<InterfaceVersion<'d>> {
        let exports = exports(&loaded.files)?;
        if exports.as_ref().is_some_and(SymbolNames::is_empty) {
            output::notice(&format_args!(
                "{} exports neither functions nor data",
                path.display()
            ));
        }
        Ok(InterfaceVersion {
            graph: with_aliases(loaded),
            exports,
        })
    }

    /// The names that have types.
    fn typed(&self) -> SymbolNames {
        let names = |symbols: &[TypedSymbol<'_>]| {
            let names = symbols.iter().map(|one| one.name.to_string());
            names.collect::<BTreeSet<_>>()
        };
        let mut objects = names(&self.graph.objects);
        objects.append(&mut names(&self.graph.variables));
        SymbolNames {
            functions: names(&self.graph.functions),
            objects,
            ..SymbolNames::default()
        }
    }

    /// The names to compare. If only one version has exports, these are its exports with types in
    /// both versions. If neither has, all names with types.
    fn exports(&self, other: &InterfaceVersion<'_>) -> SymbolNames {
        match (&self.exports, &other.exports) {
            (Some(own), Some(_)) => own.clone(),
            (Some(own), None) => own.common(&self.typed()),
            (None, Some(others)) => others.common(&other.typed()).common(&self.typed()),
            (None, None) => self.typed(),
        }
    }

    fn interface<'i>(&'i self, names: &'i SymbolNames) -> Interface<'i, 'd> {
        Interface {
            graph: &self.graph,
            functions: &names.functions,
            objects: &names.objects,
            thread_locals: &names.thread_locals,
        }
    }
}

/// All types of a file as one graph, which includes the aliases of symbols.
fn with_aliases<'d>(loaded: &LoadedTypes<'d>) -> Graph<'d> {
    let mut graph = loaded.one_graph();
    let mut aliases = loaded.aliases.clone();
    aliases.remove_typed(std::iter::once(&graph));
    aliases.apply_to(&mut graph);
    graph
}

/// The exports of files: the symbols in `.dynsym`, or without one the global symbols of `.symtab`.
/// `None` if a file has neither.
fn exports(files: &[&ElfFile]) -> anyhow::Result<Option<SymbolNames>> {
    let mut exports = SymbolNames::default();
    for file in files {
        let elf = elf_context(file)?;
        if elf.dynsym.is_empty() && elf.symtab.is_empty() {
            return Ok(None);
        }
        let symbols = elf.symbols(!elf.dynsym.is_empty());
        exports.extend(symbols.filter(|symbol| symbol.is_global));
    }
    Ok((!files.is_empty()).then_some(exports))
}

fn count(changes: &[InterfaceChange], compatibility: Compatibility) -> usize {
    changes
        .iter()
        .filter(|change| change.compatibility == compatibility)
        .count()
}

fn word(compatibility: Compatibility) -> &'static str {
    match compatibility {
        Compatibility::Breaking => "breaking",
        Compatibility::Compatible => "compatible",
    }
}

fn text(out: &mut dyn Write, changes: &[InterfaceChange]) -> anyhow::Result<()> {
    for change in changes {
        let InterfaceChange {
            compatibility: effect,
            subject,
            message: what,
            path,
        } = change;
        writeln!(
            out,
            "{}: {} {}",
            word(*effect),
            EscapedText(subject),
            EscapedText(what)
        )?;
        if !path.is_empty() && path != subject {
            writeln!(out, "    by {}", EscapedText(path))?;
        }
    }
    let (breaks, compatible) = (
        count(changes, Compatibility::Breaking),
        count(changes, Compatibility::Compatible),
    );
    writeln!(
        out,
        "changes that break: {breaks}, compatible: {compatible}"
    )?;
    Ok(())
}

fn json(changes: &[InterfaceChange]) -> anyhow::Result<()> {
    let all = changes.iter().map(|change| {
        json!({
            "compatibility": word(change.compatibility),
            "subject": change.subject,
            "message": change.message,
            "path": if change.path.is_empty() { serde_json::Value::Null } else { json!(change.path) },
        })
    });
    let body = json!({
        "breaking": count(changes, Compatibility::Breaking) > 0,
        "changes": all.collect::<Vec<_>>(),
    });
    Ok(output::document("ctf-diff", &body)?)
}
