//! Reports as JSON (docs/json.md).

use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use unspool_rows::Vaddr;

use crate::convention::CallingConvention;
use crate::file_report::FileReport;
use crate::finding::FindingCode;
use crate::locate::LocatedFinding;
use crate::suppress::CommentRemark;

/// Greatest number of addresses of a finding's set. All findings of the entry have the same set.
const MAX_FIX_SET: usize = 64;

/// An address: a string, since numbers above 2^53 are not safe in every reader.
fn address(at: &Vaddr) -> String {
    format!("{:#x}", at.0)
}

/// A calling convention, with the number of its entries.
fn convention((convention, entries): &(CallingConvention, usize)) -> Value {
    json!({ "name": convention.name, "entries": entries })
}

impl Serialize for FileReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let totals = &self.totals;
        let report = json!({
            "file": self.path.to_string_lossy(),
            "rows": {
                "total": totals.rows,
                "proven": totals.proven,
                "proven_cfa": totals.proven_cfa,
                "assuming_bounds": totals.assuming_bounds,
                "assuming_noreturn": totals.assuming_noreturn,
                "partly_judged": totals.partly_judged,
                "refuted": totals.refuted,
                "unproven": totals.unproven,
                "unreached": totals.unreached,
            },
            "functions_assuming_bounds": self.functions_assuming_bounds.iter().map(address).collect::<Vec<_>>(),
            "calls_assumed_noreturn": self.calls_assumed_noreturn.iter().map(address).collect::<Vec<_>>(),
            "functions_assumed_noreturn": self.functions_assumed_noreturn,
            "conventions": self.conventions.iter().map(convention).collect::<Vec<_>>(),
            "findings": self.findings,
            "remarks": self.remarks,
            "findings_below_severity": self.below_severity,
        });
        report.serialize(serializer)
    }
}

impl Serialize for LocatedFinding {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let finding = &self.finding;
        let jumps = self.path.iter();
        let jumps = jumps.map(|jump| jump.map(|(at, _)| address(&at)));
        let located = json!({
            "code": finding.code.to_string(),
            "name": finding.code.name(),
            "severity": finding.severity.to_string(),
            "file": self.source.as_ref().map(|(file, _)| file),
            "line": self.source.as_ref().map(|(_, line)| line),
            "function": self.function.as_ref().map(|(name, _)| name),
            "offset": self.function.as_ref().map(|(_, offset)| offset),
            "address": address(&finding.address),
            "section": self.section.as_ref().map(|(name, _)| name),
            "section_offset": self.section.as_ref().map(|(_, offset)| offset),
            "subject": finding.subject,
            "declared": finding.declared,
            "computed": finding.computed,
            "occurrences": finding.occurrences,
            "related_addresses": finding.related.iter().map(address).collect::<Vec<_>>(),
            "jumps": jumps.collect::<Vec<_>>(),
            "fix": finding.fix,
            "hint": self.hint(),
            "remedy": self.remedy(),
            "fix_set": self.fix_set.iter().take(MAX_FIX_SET).map(address).collect::<Vec<_>>(),
            "fix_set_size": self.fix_set.len(),
            "fix_after_line": self.after_line,
            "edits": self.advice,
            "suppression": self.suppression,
        });
        located.serialize(serializer)
    }
}

impl Serialize for CommentRemark {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let remark = json!({
            "code": FindingCode::Allow.to_string(),
            "name": FindingCode::Allow.name(),
            "severity": self.severity.to_string(),
            "file": self.path,
            "line": self.line,
            "message": self.text,
        });
        remark.serialize(serializer)
    }
}
