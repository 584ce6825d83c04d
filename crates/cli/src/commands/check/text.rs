//! Findings as text.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path;

use unspool_check::{
    CallingConvention, FileReport, FindingCode, ListingLine, LocatedFinding, RowTotals, Severity,
};
use unspool_rows::Vaddr;

use crate::output::{self, EscapedText};

pub(super) fn print(checked: &[FileReport], is_summary: bool) -> anyhow::Result<()> {
    let mut out = output::text();
    let is_one = |a: &FileReport, b: &FileReport| a.archive.is_some() && a.archive == b.archive;
    for files in checked.chunk_by(is_one) {
        for file in files {
            if !is_summary {
                print_findings(&mut out, file)?;
            }
            if file.archive.is_some() && file.severities().next().is_some() {
                let member = std::slice::from_ref(file);
                print_totals(&mut out, &output::path(&file.path), member)?;
            }
        }
        let name = files
            .first()
            .map(|file| file.archive.as_ref().unwrap_or(&file.path));
        let name = name.map_or_else(String::new, |name| output::path(name));
        print_totals(&mut out, &name, files)?;
        print_assumptions(&mut out, &name, files)?;
    }
    out.flush()?;
    Ok(())
}

fn print_findings(out: &mut impl Write, file: &FileReport) -> io::Result<()> {
    for finding in file.unsuppressed() {
        report(out, &file.path, finding)?;
    }
    for remark in &file.remarks {
        let (path, code) = (EscapedText(&remark.path), FindingCode::Allow);
        let (line, severity) = (remark.line, remark.severity);
        writeln!(out, "{path}:{line}: {severity} {code} {}", remark.text)?;
    }
    Ok(())
}

/// The rows of files together.
fn totals(files: &[FileReport]) -> RowTotals {
    let mut totals = RowTotals::default();
    for file in files {
        totals.add(&file.totals);
    }
    totals
}

/// A line on the rows of files, and their findings.
fn print_totals(out: &mut impl Write, name: &str, files: &[FileReport]) -> io::Result<()> {
    let totals = totals(files);
    write!(
        out,
        "{name}: {} rows: {} proven, {} refuted, {} unproven, {} never reached",
        totals.rows, totals.proven, totals.refuted, totals.unproven, totals.unreached,
    )?;
    // Not all findings are about rows, and one may be about several.
    let counts = [Severity::Refuted, Severity::Unproven, Severity::Note].map(|severity| {
        let severities = files.iter().flat_map(FileReport::severities);
        (severity, severities.filter(|it| *it == severity).count())
    });
    let listed = counts.iter().filter(|(_, count)| *count > 0);
    let listed = listed.map(|(severity, count)| format!("{count} {severity}"));
    let listed: Vec<String> = listed.collect();
    match listed.as_slice() {
        [] => writeln!(out),
        _ => writeln!(out, "; findings: {}", listed.join(", ")),
    }
}

/// What was suppressed, and what proofs depend on.
fn print_assumptions(out: &mut impl Write, name: &str, files: &[FileReport]) -> io::Result<()> {
    let totals = totals(files);
    let suppressed = files
        .iter()
        .map(|file| file.findings.len() - file.unsuppressed().count());
    let suppressed: usize = suppressed.sum();
    if suppressed > 0 {
        writeln!(out, "{name}: {suppressed} findings suppressed")?;
    }
    if totals.assuming_bounds > 0 {
        writeln!(
            out,
            "{name}: {} proven rows are right only if no array on the stack is written past its end: docs/checking.md, assumption 3",
            totals.assuming_bounds
        )?;
    }
    for (convention, entries) in conventions(files) {
        let judged = if convention.has_calls {
            "registers that it does not preserve are not judged"
        } else {
            "their rows are not judged"
        };
        writeln!(
            out,
            "{name}: {entries} entries follow the convention of {}: {judged}: docs/checking.md",
            convention.name
        )?;
    }
    if totals.assuming_noreturn > 0 {
        writeln!(
            out,
            "{name}: {} proven rows assume that {} not return: docs/checking.md, assumption 5",
            totals.assuming_noreturn,
            assumed_noreturn(files),
        )?;
    }
    Ok(())
}

/// The functions of files that are assumed not to return, with the verb: some names stand for all.
fn assumed_noreturn(files: &[FileReport]) -> String {
    const MAX_NAMES: usize = 4;
    let names = files
        .iter()
        .flat_map(|file| &file.functions_assumed_noreturn);
    let names: BTreeSet<&str> = names.map(String::as_str).collect();
    let shown = names.iter().take(MAX_NAMES);
    let mut shown: Vec<String> = shown.map(|name| EscapedText(name).to_string()).collect();
    match (shown.as_slice(), names.len().saturating_sub(MAX_NAMES)) {
        ([], _) => "calls of unknown functions do".to_owned(),
        ([name], _) => format!("{name} does"),
        (_, 0) => {
            let last = shown.pop().unwrap_or_default();
            format!("{} and {last} do", shown.join(", "))
        }
        (_, others) => format!("{} and {others} others do", shown.join(", ")),
    }
}

/// The calling conventions of files, with the sums of their entries.
fn conventions(files: &[FileReport]) -> Vec<(CallingConvention, usize)> {
    let mut found: Vec<(CallingConvention, usize)> = Vec::new();
    for (convention, entries) in files.iter().flat_map(|file| &file.conventions) {
        match found.iter_mut().find(|(known, _)| known == convention) {
            Some((_, sum)) => *sum += entries,
            None => found.push((*convention, *entries)),
        }
    }
    found
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
        None => format!("{}:{}", output::path(file), located_finding.address()),
    };
    write!(
        out,
        "{place}: {} {} {}",
        finding.severity,
        finding.code,
        located_finding.message(),
    )?;
    match (&located_finding.function, &located_finding.source) {
        (Some((name, distance)), _) => {
            writeln!(out, ": in {}+{distance:#x}", EscapedText(name))?;
        }
        (None, Some(_)) => writeln!(out, ": at {}", located_finding.address())?,
        // The place has the address.
        (None, None) => writeln!(out)?,
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
            located_finding.printed_address(line.address),
            line.text,
            line.declared
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
            None => format!("{:x}", located_finding.printed_address(at)),
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
    if let Some(hint) = located_finding.hint() {
        writeln!(out, "    {hint}")?;
    }
    writeln!(out, "    {}", located_finding.remedy())?;
    let others = located_finding.fix_set.len().saturating_sub(1);
    if others > 0 && located_finding.advice.is_none() && located_finding.row_writer.is_none() {
        let others = match others {
            1 => "the directive of the entry's other finding".to_owned(),
            others => format!("the directives of the entry's {others} other findings"),
        };
        writeln!(out, "    with {others}, the entry is right")?;
    }
    Ok(())
}
