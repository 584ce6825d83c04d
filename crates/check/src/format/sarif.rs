//! Findings as SARIF 2.1.0 (OASIS, "Static Analysis Results Interchange Format").

use serde::Serialize;
use serde_json::{Value, json};

use crate::file_report::FileReport;
use crate::finding::{FindingCode, Severity};
use crate::locate::LocatedFinding;
use crate::suppress::{CommentRemark, FindingIdentity, Suppression, SuppressionKind};

/// The log of one run with the reports of these files. `version` is the tool's.
#[must_use]
pub fn sarif_log(reports: &[FileReport], version: &str) -> impl Serialize + use<> {
    let results = reports.iter().flat_map(|file| {
        let findings = file.findings.iter().map(|finding| result(file, finding));
        findings
            .chain(file.remarks.iter().map(remark))
            .collect::<Vec<_>>()
    });
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "unspool",
                "version": version,
                "rules": FindingCode::all().map(rule).collect::<Vec<_>>(),
            }},
            "results": results.collect::<Vec<_>>(),
        }],
    })
}

fn rule(code: FindingCode) -> Value {
    json!({
        "id": code.to_string(),
        "name": code.name(),
        "shortDescription": { "text": code.summary() },
        "help": { "text": code.explanation(), "markdown": code.explanation() },
    })
}

fn result(file: &FileReport, located_finding: &LocatedFinding) -> Value {
    let finding = &located_finding.finding;
    let (path, line) = located_finding.place(&file.path);
    let artifact = json!({ "uri": uri(&path) });
    let location = match line {
        // The compiler's line 0 means "none".
        Some(line @ 1..) => {
            json!({ "artifactLocation": artifact, "region": { "startLine": line } })
        }
        _ => json!({
            "artifactLocation": artifact,
            "address": { "absoluteAddress": finding.address.0 },
        }),
    };
    json!({
        "ruleId": finding.code.to_string(),
        "level": level(finding.severity),
        "message": { "text": located_finding.sentence() },
        "locations": [{ "physicalLocation": location }],
        "partialFingerprints": { "finding/v1": fingerprint(file, located_finding) },
        "suppressions": located_finding.suppression.iter().map(suppression).collect::<Vec<_>>(),
    })
}

/// A remark on a comment.
fn remark(remark: &CommentRemark) -> Value {
    json!({
        "ruleId": FindingCode::Allow.to_string(),
        "level": level(remark.severity),
        "message": { "text": remark.text },
        "locations": [{ "physicalLocation": {
            "artifactLocation": { "uri": uri(&remark.path) },
            "region": { "startLine": remark.line },
        }}],
        "suppressions": [],
    })
}

fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Refuted => "error",
        Severity::Unproven => "warning",
        Severity::Note => "note",
    }
}

/// Identifies a finding in other runs, whatever its address and line.
fn fingerprint(file: &FileReport, finding: &LocatedFinding) -> String {
    let FindingIdentity {
        code,
        file,
        function,
        subject,
    } = FindingIdentity::new(&file.path, finding);
    format!("{code}:{file}:{function}:{subject}")
}

/// SARIF 2.1.0, 3.35: in the source, or external.
fn suppression(suppression: &Suppression) -> Value {
    json!({
        "kind": match suppression.kind {
            SuppressionKind::Comment => "inSource",
            SuppressionKind::File | SuppressionKind::Baseline => "external",
        },
        "justification": suppression.reason,
    })
}

/// A path as a URI reference (RFC 3986): reserved characters are escaped.
fn uri(path: &str) -> String {
    let mut uri = String::new();
    if path.starts_with('/') {
        uri.push_str("file://");
    }
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' | b'~' | b'+' => {
                uri.push(char::from(byte));
            }
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri
}
