//! A report as JSON (docs/json.md).

use serde_json::{Value, json};

use super::suppress::Remark;
use super::{FileReport, LocatedFinding};
use crate::output;

pub(super) fn print(checked: &[FileReport], failed: Vec<Value>) -> anyhow::Result<()> {
    let files: Vec<Value> = checked.iter().map(file_as_json).chain(failed).collect();
    let body = json!({
        "unspool": env!("CARGO_PKG_VERSION"),
        "files": files,
    });
    Ok(output::document("check", &body)?)
}

fn file_as_json(file: &FileReport) -> Value {
    let totals = &file.totals;
    let findings: Vec<Value> = file.findings.iter().map(finding_as_json).collect();
    json!({
        "file": file.path.to_string_lossy(),
        "rows": {
            "all": totals.rows,
            "proven": totals.proven,
            "proven_cfa": totals.proven_cfa,
            "assuming_bounds": totals.assuming_bounds,
            "refuted": totals.refuted,
            "unproven": totals.unproven,
            "unreached": totals.unreached,
        },
        "assuming_bounds": file.assuming_bounds.iter().map(|at| output::address(at.0)).collect::<Vec<_>>(),
        "findings": findings,
        "remarks": file.remarks.iter().map(Remark::as_json).collect::<Vec<_>>(),
        "not_told": file.below_severity,
    })
}

/// One finding.
pub(super) fn finding_as_json(located_finding: &LocatedFinding) -> Value {
    let finding = &located_finding.finding;
    json!({
        "code": finding.code.id(),
        "name": finding.code.name(),
        "verdict": finding.severity.name(),
        "file": located_finding.source.as_ref().map(|(file, _)| file),
        "line": located_finding.source.as_ref().map(|(_, line)| line),
        "function": located_finding.function.as_ref().map(|(name, _)| name),
        "offset": located_finding.function.as_ref().map(|(_, offset)| offset),
        "address": output::address(finding.address.0),
        "subject": finding.subject,
        "declared": finding.declared,
        "computed": finding.computed,
        "places": finding.occurrences,
        "related": finding.related.iter().map(|at| output::address(at.0)).collect::<Vec<_>>(),
        "path": located_finding.path.iter().map(|jump| jump.map(|(at, _)| output::address(at.0))).collect::<Vec<_>>(),
        "fix": finding.fix,
        "hint": finding.hint.map(|hint| hint.to_string()),
        "remedy": located_finding.remedy(),
        "fix_after_line": located_finding.after_line,
        "edits": located_finding.advice,
        "suppressed": located_finding.suppression.as_ref().map(|suppression| json!({
            "by": suppression.kind.name(),
            "reason": suppression.reason,
        })),
    })
}
