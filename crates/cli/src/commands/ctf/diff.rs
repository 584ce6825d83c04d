//! `unspool ctf diff`.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use serde_json::json;
use unspool_c_types::{Compatibility, Exports, Graph, Interface, InterfaceChange, diff};
use unspool_dwarf_types::elf_context;
use unspool_elf::ElfFile;

use super::excuses::Excuses;
use super::loaded::{self, LoadedTypes};
use crate::args::Format;
use crate::args::ctf::CtfDiffArgs;
use crate::output::{self, EscapedText, ExitCodes};

pub(crate) fn run(args: &CtfDiffArgs) -> anyhow::Result<ExitCode> {
    let base = args.base.as_deref();
    let new_base = args.new_base.as_deref().or(base);
    let mut excuses = match &args.excuses {
        Some(path) => Some((path, Excuses::read(path)?)),
        None => None,
    };
    let (mut changes, is_clean) = loaded::with_types(&args.old, base, |old| {
        loaded::with_types(&args.new, new_base, |new| {
            let (before, after) = (
                InterfaceVersion::new(old, &args.old)?,
                InterfaceVersion::new(new, &args.new)?,
            );
            let exports = [before.exports(&after), after.exports(&before)];
            let [one, two] = &exports;
            let before = Interface {
                graph: &before.graph,
                exports: one,
            };
            let after = Interface {
                graph: &after.graph,
                exports: two,
            };
            let changes = diff(before, after);
            Ok((changes, old.is_clean && new.is_clean))
        })
    })?;
    let mut excused = 0;
    if let Some((path, excuses)) = &mut excuses {
        excused = excuses.apply(path, &mut changes);
    }
    match args.format {
        Format::Text => {
            let mut out = output::text();
            text(&mut out, &changes, args.all_names)?;
            if excused > 0 {
                writeln!(out, "changes that are excused: {excused}")?;
            }
            if !is_clean {
                writeln!(out, "not all types were read: there may be more changes")?;
            }
            out.flush()?;
        }
        Format::Json => json(&changes, is_clean, excused)?,
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
    exports: Option<Exports>,
}

impl<'d> InterfaceVersion<'d> {
    fn new(loaded: &LoadedTypes<'d>, path: &Path) -> anyhow::Result<InterfaceVersion<'d>> {
        let exports = exports(&loaded.files)?;
        if exports.as_ref().is_some_and(|all| all.symbols.is_empty()) {
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

    /// The names to compare. If only one version has exports, these are its exports with types in
    /// both versions. If neither has, all names with types.
    fn exports(&self, other: &InterfaceVersion<'_>) -> Exports {
        let typed = Exports::with_types(&self.graph);
        match (&self.exports, &other.exports) {
            (Some(own), Some(_)) => own.clone(),
            (Some(own), None) => own.common(&typed),
            (None, Some(others)) => {
                let others = others.common(&Exports::with_types(&other.graph));
                others.common(&typed)
            }
            (None, None) => typed,
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

/// The exports of files. `None` if one has no symbols.
fn exports(files: &[&ElfFile]) -> anyhow::Result<Option<Exports>> {
    let mut all = Exports::default();
    for file in files {
        let Some(exports) = Exports::from_elf(elf_context(file)?) else {
            return Ok(None);
        };
        all.symbols.extend(exports.symbols);
        all.versions.extend(exports.versions);
        all.soname = file.soname().map(Into::into);
    }
    Ok((!files.is_empty()).then_some(all))
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

/// Prints changes, each with the exported names that lead to it: the one of the path and the number
/// of others, or all.
fn text(
    out: &mut dyn Write,
    changes: &[InterfaceChange],
    has_all_names: bool,
) -> anyhow::Result<()> {
    for change in changes {
        let InterfaceChange {
            compatibility: effect,
            subject,
            message: what,
            path,
            exports,
            kind: _,
        } = change;
        writeln!(
            out,
            "{}: {} {}",
            word(*effect),
            EscapedText(subject),
            EscapedText(what)
        )?;
        let others = exports.len().saturating_sub(1);
        let path = Some(path).filter(|path| !path.is_empty() && *path != subject || others > 0);
        if let Some(path) = path {
            write!(out, "    by {}", EscapedText(path))?;
            match others {
                0 => writeln!(out)?,
                1 => writeln!(out, ", and 1 more name")?,
                _ => writeln!(out, ", and {others} more names")?,
            }
        }
        if has_all_names && !exports.is_empty() {
            writeln!(out, "    of {}", EscapedText(&exports.join(", ")))?;
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

fn json(changes: &[InterfaceChange], is_complete: bool, excused: usize) -> anyhow::Result<()> {
    let all = changes.iter().map(|change| {
        json!({
            "compatibility": word(change.compatibility),
            "kind": change.kind.word(),
            "subject": change.subject,
            "message": change.message,
            "path": if change.path.is_empty() { serde_json::Value::Null } else { json!(change.path) },
            "exports": change.exports,
        })
    });
    let body = json!({
        "breaking": count(changes, Compatibility::Breaking) > 0,
        "complete": is_complete,
        "excused": excused,
        "changes": all.collect::<Vec<_>>(),
    });
    Ok(output::document("ctf-diff", &body)?)
}
