//! `unspool ctf diff`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, anyhow, bail};
use serde_json::json;
use unspool_c_types::{Compatibility, Excuses, InterfaceChange, InterfaceDiff};
use unspool_dwarf_types::{PublicHeaders, TypeLoader, UnitChoice};

use super::loader;
use crate::args::Format;
use crate::args::ctf::CtfDiffArgs;
use crate::output::{self, EscapedText, ExitCodes};

pub(crate) fn run(args: &CtfDiffArgs) -> anyhow::Result<ExitCode> {
    let base = args.base.as_deref();
    let new_base = args.new_base.as_deref().or(base);
    let mut excuses = match &args.excuses {
        Some(path) => Some((path.display(), read_excuses(path)?)),
        None => None,
    };
    let (headers, new_headers) = (headers(&args.headers)?, headers(&args.new_headers)?);
    let versions = [
        (base, headers.as_ref()),
        (new_base, new_headers.as_ref().or(headers.as_ref())),
    ];
    let [old, new] = versions.map(|(base, headers)| TypeLoader {
        base,
        headers,
        units: UnitChoice::CLinkage,
        ..loader()
    });
    let (mut found, is_clean) = old.types(&args.old, |old| {
        new.types(&args.new, |new| {
            let found = loader().interface_diff(old, new)?;
            Ok::<_, anyhow::Error>((found, old.is_clean && new.is_clean))
        })?
    })??;
    let is_complete = is_clean && found.is_complete();
    let mut excused = 0;
    if let Some((path, excuses)) = &mut excuses {
        excused = excuses.apply(&mut found.changes);
        for line in excuses.unused() {
            output::notice(&format_args!("{path}:{line}: excuses nothing"));
        }
    }
    match args.format {
        Format::Text => {
            let mut out = output::text();
            text(&mut out, &found, args.all_names)?;
            if let Some(headers) = &headers {
                left_out(&mut out, &found, headers, args.all_names)?;
            }
            if excused > 0 {
                writeln!(out, "changes that are excused: {excused}")?;
            }
            if !is_clean || found.is_cut {
                writeln!(out, "not all types were read: there may be more changes")?;
            }
            out.flush()?;
        }
        Format::Json => json(&found, is_complete, excused, args.all_names)?,
    }
    let is_nothing = found.names.is_empty();
    if let Some(headers) = headers.filter(|_| is_nothing && found.untyped.is_empty())
        && !found.private_exports.is_empty()
    {
        bail!(
            "no function and no data that {} exports is declared in headers below {headers}: nothing could be compared",
            args.old.display()
        );
    }
    if is_nothing && !found.untyped.is_empty() {
        bail!(
            "no function and no data has a type in both {} and {}: nothing could be compared",
            args.old.display(),
            args.new.display()
        );
    }
    let is_compatible = count(&found.changes, Compatibility::Breaking) == 0;
    Ok(if is_complete && is_compatible {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(ExitCodes::FINDINGS)
    })
}

/// The public headers in files and folders, if there are any.
fn headers(paths: &[PathBuf]) -> anyhow::Result<Option<PublicHeaders>> {
    let wanted = Some(paths).filter(|paths| !paths.is_empty());
    Ok(wanted.map(PublicHeaders::read).transpose()?)
}

/// The size of the largest file of excuses, in bytes.
const MAX_EXCUSES_BYTES: u64 = 1 << 20;

fn read_excuses(path: &Path) -> anyhow::Result<Excuses> {
    let text = unspool_files::read(path, MAX_EXCUSES_BYTES)
        .with_context(|| format!("cannot read {}", path.display()))?;
    let excuses = Excuses::parse(&String::from_utf8_lossy(&text));
    excuses.map_err(|error| anyhow!("{}:{error}", path.display()))
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
fn text(out: &mut dyn Write, found: &InterfaceDiff, has_all_names: bool) -> anyhow::Result<()> {
    let changes = &found.changes;
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
        let at_least = if exports.is_cut() { "at least " } else { "" };
        let path = Some(path).filter(|path| !path.is_empty() && *path != subject || others > 0);
        if let Some(path) = path {
            write!(out, "    by {}", EscapedText(path))?;
            match others {
                0 => writeln!(out)?,
                1 => writeln!(out, ", and {at_least}1 more name")?,
                _ => writeln!(out, ", and {at_least}{others} more names")?,
            }
        }
        if has_all_names && !exports.is_empty() {
            let names: Vec<_> = found.exports(change).collect();
            writeln!(out, "    of {}", EscapedText(&names.join(", ")))?;
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
    if !found.untyped.is_empty() {
        writeln!(
            out,
            "not compared, without a type in one version or both: {} of {} functions and data",
            found.untyped.len(),
            found.untyped.len() + found.names.len()
        )?;
    }
    for untyped in found.untyped.iter().filter(|_| has_all_names) {
        writeln!(out, "    {}", EscapedText(&untyped.subject))?;
    }
    if !found.unknown.is_empty() {
        writeln!(
            out,
            "not compared, of a type that the format cannot express: {}",
            found.unknown.len()
        )?;
    }
    for unknown in found.unknown.iter().filter(|_| has_all_names) {
        writeln!(out, "    {}", EscapedText(unknown))?;
    }
    Ok(())
}

/// Prints what public headers do not declare.
fn left_out(
    out: &mut dyn Write,
    found: &InterfaceDiff,
    headers: &PublicHeaders,
    has_all_names: bool,
) -> anyhow::Result<()> {
    let all = [
        ("exported name", found.private_exports.iter().collect()),
        ("type", found.private_types.iter().collect::<Vec<_>>()),
    ];
    for (what, names) in all {
        let count = names.len();
        if count > 0 {
            let plural = if count == 1 { "" } else { "s" };
            writeln!(
                out,
                "not declared in headers below {headers}: {count} {what}{plural}"
            )?;
        }
        for name in names.iter().filter(|_| has_all_names) {
            writeln!(out, "    {}", EscapedText(name))?;
        }
    }
    Ok(())
}

/// The maximum number of names of a change in JSON, unless all are wanted: in a kernel, most changes
/// are reached from most functions.
const MAX_NAMES: usize = 1000;

fn json(
    found: &InterfaceDiff,
    is_complete: bool,
    excused: usize,
    has_all_names: bool,
) -> anyhow::Result<()> {
    let most = if has_all_names { usize::MAX } else { MAX_NAMES };
    let all = found.changes.iter().map(|change| {
        json!({
            "compatibility": word(change.compatibility),
            "kind": change.kind.word(),
            "subject": change.subject,
            "message": change.message,
            "path": if change.path.is_empty() { serde_json::Value::Null } else { json!(change.path) },
            "exports": found.exports(change).take(most).collect::<Vec<_>>(),
            "export_count": change.exports.len(),
            "exports_complete": !change.exports.is_cut(),
        })
    });
    let untyped = found
        .untyped
        .iter()
        .map(|one| json!({ "subject": one.subject, "had_type": one.had_type }));
    let body = json!({
        "breaking": count(&found.changes, Compatibility::Breaking) > 0,
        "complete": is_complete,
        "compared": found.names.len(),
        "untyped": untyped.collect::<Vec<_>>(),
        "unknown": found.unknown,
        "private_exports": found.private_exports,
        "private_types": found.private_types,
        "excused": excused,
        "changes": all.collect::<Vec<_>>(),
    });
    Ok(output::document("ctf-diff", &body)?)
}
