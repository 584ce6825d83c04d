//! Findings as annotations of GitHub's workflows ("Workflow commands for GitHub Actions").

use std::io::Write as _;

use unspool_check::{FindingCode, Severity};

use super::FileReport;
use crate::output;

pub(super) fn print(checked: &[FileReport]) -> anyhow::Result<()> {
    let mut out = output::text();
    for file in checked {
        for finding in file.unsuppressed() {
            let (path, line) = finding.place(file);
            let level = level(finding.finding.severity);
            write!(out, "::{level} file={}", escaped(&path, &[':', ',']))?;
            if let Some(line) = line {
                write!(out, ",line={line}")?;
            }
            let title = format!(
                "{} {}",
                finding.finding.code.id(),
                finding.finding.code.name()
            );
            writeln!(out, ",title={title}::{}", escaped(&finding.sentence(), &[]))?;
        }
        for remark in &file.remarks {
            let (level, path) = (level(remark.severity), escaped(&remark.path, &[':', ',']));
            let title = format!("{} {}", FindingCode::Allow.id(), FindingCode::Allow.name());
            writeln!(
                out,
                "::{level} file={path},line={},title={title}::{}",
                remark.line, remark.text
            )?;
        }
    }
    out.flush()?;
    Ok(())
}

fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Refuted => "error",
        Severity::Unproven => "warning",
        Severity::Note => "notice",
    }
}

/// Escapes a text, so that nothing in it ends the command or a property.
fn escaped(text: &str, special: &[char]) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '%' | '\r' | '\n' => escaped.push_str(&format!("%{:02X}", u32::from(c))),
            c if special.contains(&c) => escaped.push_str(&format!("%{:02X}", u32::from(c))),
            c => escaped.push(c),
        }
    }
    escaped
}
