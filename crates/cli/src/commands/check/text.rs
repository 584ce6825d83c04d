//! Findings as text.

use std::io::{self, Write};
use std::path::Path;

use unspool_check::{FileReport, FindingCode, ListingLine, LocatedFinding, RowTotals, Severity};
use unspool_rows::Vaddr;

use crate::output::{self, EscapedText};

pub(super) fn print(checked: &[FileReport]) -> anyhow::Result<()> {
    let mut out = output::text();
    let is_one = |a: &FileReport, b: &FileReport| a.archive.is_some() && a.archive == b.archive;
    for files in checked.chunk_by(is_one) {
        let mut totals = RowTotals::default();
        let mut suppressed = 0;
        let mut listed = [Severity::Refuted, Severity::Unproven, Severity::Note].map(|it| (it, 0));
        for file in files {
            for finding in file.unsuppressed() {
                report(&mut out, &file.path, finding)?;
            }
            for remark in &file.remarks {
                let (path, code) = (EscapedText(&remark.path), FindingCode::Allow.id());
                let (line, severity) = (remark.line, remark.severity.name());
                writeln!(out, "{path}:{line}: {severity} {code} {}", remark.text)?;
            }
            for severity in file.severities() {
                let counts = listed.iter_mut().filter(|(it, _)| *it == severity);
                counts.for_each(|(_, count)| *count += 1);
            }
            totals.add(&file.totals);
            suppressed += file.findings.len() - file.unsuppressed().count();
        }
        let name = files
            .first()
            .map(|file| file.archive.as_ref().unwrap_or(&file.path));
        let name = name.map_or_else(String::new, |name| output::path(name));
        write!(
            out,
            "{name}: {} rows: {} proven, {} refuted, {} unproven, {} never reached",
            totals.rows, totals.proven, totals.refuted, totals.unproven, totals.unreached,
        )?;
        // Not all findings are about rows, and one may be about several.
        let listed = listed.iter().filter(|(_, count)| *count > 0);
        let listed = listed.map(|(severity, count)| format!("{count} {}", severity.name()));
        let listed: Vec<String> = listed.collect();
        match listed.as_slice() {
            [] => writeln!(out)?,
            _ => writeln!(out, "; findings: {}", listed.join(", "))?,
        }
        if suppressed > 0 {
            writeln!(out, "{name}: {suppressed} findings suppressed")?;
        }
        if totals.assuming_bounds > 0 {
            writeln!(
                out,
                "{name}: {} proven rows assume that stores by an index or a count stay inside arrays: docs/checking.md, assumption 3",
                totals.assuming_bounds
            )?;
        }
        if totals.assuming_noreturn > 0 {
            writeln!(
                out,
                "{name}: {} proven rows assume that calls of unknown functions do not return: docs/checking.md, assumption 5",
                totals.assuming_noreturn
            )?;
        }
    }
    out.flush()?;
    Ok(())
}

/// Whether line numbers name a given file: it is shown as given then.
fn is_same_file(source: &str, given: &Path) -> bool {
    let source = Path::new(source);
    let is_named_so = source.file_name() == given.file_name();
    let canonical = |path: &Path| path.canonicalize().ok();
    is_named_so && canonical(source).is_some_and(|source| canonical(given) == Some(source))
}

/// One finding.
pub(super) fn report(
    out: &mut impl Write,
    file: &Path,
    located_finding: &LocatedFinding,
) -> io::Result<()> {
    let finding = &located_finding.finding;
    let place = match &located_finding.source {
        Some((source, line)) if is_same_file(source, file) => {
            format!("{}:{line}", output::path(file))
        }
        Some((source, line)) => format!("{}:{line}", EscapedText(source)),
        None => format!("{}:{}", output::path(file), finding.address),
    };
    write!(
        out,
        "{place}: {} {} {}: ",
        finding.severity.name(),
        finding.code.id(),
        finding.message(),
    )?;
    match &located_finding.function {
        Some((name, distance)) => writeln!(out, "in {}+{distance:#x}", EscapedText(name))?,
        None => writeln!(out, "at {}", finding.address)?,
    }
    let width = |text: fn(&ListingLine) -> &str| {
        let widths = located_finding.lines.iter().map(|line| text(line).len());
        widths.max().unwrap_or(0)
    };
    let (width, column) = (
        width(|line| &line.text),
        width(|line| &line.declared).max(10),
    );
    for line in &located_finding.lines {
        let mark = if line.address == finding.address {
            '>'
        } else {
            ' '
        };
        write!(
            out,
            "  {mark} {:>8x}  {:width$}  declared {:<column$}",
            line.address.0, line.text, line.declared
        )?;
        match line.computed.as_str() {
            "" => writeln!(out, "  not known")?,
            computed if computed == line.declared => writeln!(out)?,
            computed => writeln!(out, "  is {computed}")?,
        }
    }
    if !located_finding.path.is_empty() {
        let end = |(at, line): (Vaddr, Option<u32>)| match line {
            Some(line) => format!("line {line}"),
            None => format!("{:x}", at.0),
        };
        let jumps = located_finding
            .path
            .iter()
            .map(|jump| jump.map(end).join(" -> "));
        writeln!(
            out,
            "    by way of {}",
            jumps.collect::<Vec<_>>().join(", ")
        )?;
    }
    if let Some(hint) = finding.hint {
        writeln!(out, "    {hint}")?;
    }
    writeln!(out, "    {}", located_finding.remedy())
}
