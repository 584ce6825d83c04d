//! Findings as annotations of GitHub's workflows ("Workflow commands for GitHub Actions").

use core::fmt;

use crate::file_report::FileReport;
use crate::finding::{FindingCode, Severity};

/// The annotations of a file, one a line.
#[derive(Debug, Clone, Copy)]
pub struct WorkflowCommands<'r>(pub &'r FileReport);

impl fmt::Display for WorkflowCommands<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for located in self.0.unsuppressed() {
            let finding = &located.finding;
            let (path, line) = located.place(&self.0.path);
            command(f, finding.severity, &path, line)?;
            title(f, finding.code, &escaped(&located.sentence(), &[]))?;
        }
        for remark in &self.0.remarks {
            command(f, remark.severity, &remark.path, Some(remark.line))?;
            title(f, FindingCode::Allow, remark.text)?;
        }
        Ok(())
    }
}

/// Writes the command's name, and the place.
fn command(
    f: &mut fmt::Formatter<'_>,
    severity: Severity,
    path: &str,
    line: Option<u32>,
) -> fmt::Result {
    write!(
        f,
        "::{} file={}",
        level(severity),
        escaped(path, &[':', ','])
    )?;
    match line {
        Some(line) => write!(f, ",line={line}"),
        None => Ok(()),
    }
}

/// Writes the title, and the message.
fn title(f: &mut fmt::Formatter<'_>, code: FindingCode, message: &str) -> fmt::Result {
    writeln!(f, ",title={code} {}::{message}", code.name())
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
