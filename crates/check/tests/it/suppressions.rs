//! Findings that do not count: by comments, suppression files and baselines.

use std::sync::Arc;

use serde_json::Value;
use unspool_check::{
    Baseline, BaselineError, CheckOptions, FileReport, SuppressionError, Suppressions, Suppressor,
    sarif_log,
};
use unspool_elf::ElfFile;
use unspool_testing::{Finish as _, Folder, packages, tool};

use crate::common::{assembled_file, fixed, source_report, suppressor, wrong};

const CALL: &str = "\tcall\tg\n";

/// The codes of unsuppressed findings, with the remarks; and the reasons of others.
fn standing(report: &FileReport) -> (Vec<String>, Vec<String>) {
    let findings = report.unsuppressed().map(|it| it.finding.code.to_string());
    let remarks = report.remarks.iter();
    let remarks = remarks.map(|it| format!("CFI015 {} {}", it.severity, it.line));
    let reasons = report.findings.iter().filter_map(|it| {
        let suppression = it.suppression.as_ref()?;
        Some(format!("{:?}: {}", suppression.kind, suppression.reason))
    });
    (findings.chain(remarks).collect(), reasons.collect())
}

/// The report of a text by these suppressions.
fn report_by(suppressor: &mut Suppressor, text: &str) -> FileReport {
    let file = assembled_file(&Folder::new(), "push.s", text);
    FileReport::from_assembled(&file, &CheckOptions::default(), suppressor).unwrap()
}

#[test]
fn comments_in_the_source_allow_findings_with_a_reason() {
    let cases: [(&str, &[&str]); 8] = [
        // After the line, before it, before its label, in each form of comment.
        ("\tcall\tg\t# unspool: allow CFI001 it is known\n", &[]),
        (
            "\t// unspool: allow CFI004, cfa-offset it is known\n\tcall\tg\n",
            &[],
        ),
        (
            "\t/* unspool: allow CFI001 it is known */\n1:\n\n\tcall\tg\n",
            &[],
        ),
        // Without a reason, for another finding, on another line, not in a comment, for no finding.
        (
            "\tcall\tg\t# unspool: allow CFI001\n",
            &["CFI001", "CFI015 refuted 6"],
        ),
        (
            "\tcall\tg\t# unspool: allow CFI002 it is known\n",
            &["CFI001", "CFI015 note 6"],
        ),
        (
            "\tcall\tg\n# unspool: allow CFI001 it is known\n",
            &["CFI001", "CFI015 note 7"],
        ),
        (
            "\tcall\tg\n\t.pushsection .rodata; .asciz \"unspool: allow CFI001 it is known\"; .popsection\n",
            &["CFI001"],
        ),
        (
            "\tcall\tg\t# unspool: allow CFI999 it is known\n",
            &["CFI001", "CFI015 refuted 6"],
        ),
    ];
    for (lines, expected) in cases {
        let text = wrong().replace(CALL, lines);
        let report = source_report(&Folder::new(), "push.S", &text);
        let (codes, reasons) = standing(&report);
        assert_eq!(codes, expected, "{lines}");
        assert_eq!(report.has_findings(), !expected.is_empty(), "{lines}");
        if expected.is_empty() {
            assert_eq!(reasons, ["Comment: it is known"], "{lines}");
        }
    }
    // Allowed findings are not fixed, either.
    let allowed = wrong().replace(CALL, "\tcall\tg\t# unspool: allow CFI001 it is known\n");
    let fixed = fixed("push.s", &allowed);
    assert!(!fixed.source.is_changed() && fixed.refused.is_empty());
}

#[test]
fn files_of_suppressions_are_by_code_file_and_function() {
    let report = |line: &str| {
        let mut suppressor = Suppressor {
            files: vec![("known".into(), Suppressions::parse(line).unwrap())],
            ..suppressor()
        };
        let report = report_by(&mut suppressor, &wrong());
        let unused: Vec<usize> = suppressor.files[0].1.unused().collect();
        (standing(&report), unused)
    };
    for line in [
        "CFI001 push.s:f as it is\n",
        "* *:* as it is",
        "# none\n\n cfa-offset */push.*:*f as it is",
    ] {
        let ((codes, reasons), unused) = report(line);
        assert!(codes.is_empty() && unused.is_empty(), "{line}: {codes:?}");
        assert_eq!(reasons, ["File: as it is"], "{line}");
    }
    for line in [
        "CFI002 push.s:f as it is\n",
        "CFI001 push:f as it is",
        "CFI001 push.s:g* as it is",
    ] {
        let ((codes, _), unused) = report(line);
        assert_eq!(
            (codes, unused),
            (vec!["CFI001".to_owned()], vec![1]),
            "{line}"
        );
    }
    let code = SuppressionError::Code {
        line: 2,
        word: "CFI1".to_owned(),
    };
    for (text, error) in [
        ("CFI001 push.s:f", SuppressionError::Reason(1)),
        ("\nCFI1 a:b c", code),
        ("* push.s why", SuppressionError::Place(1)),
    ] {
        assert_eq!(Suppressions::parse(text).unwrap_err(), error);
    }
}

#[test]
fn a_baseline_has_what_is_known_wherever_it_is() {
    let known = [report_by(&mut suppressor(), &wrong())];
    let written = serde_json::to_string(&Baseline::from_reports(&known)).unwrap();
    let report = |text: &str| {
        let baseline = Baseline::from_json(&written).unwrap();
        assert_eq!(baseline.count(), 1);
        let mut suppressor = Suppressor {
            baseline,
            ..suppressor()
        };
        let report = report_by(&mut suppressor, text);
        let gone = suppressor
            .baseline
            .count_gone(std::slice::from_ref(&report));
        (standing(&report), gone)
    };
    // At another line and another address.
    let ((codes, reasons), gone) = report(&wrong().replace("\tpush", "\tnop\n\n\tpush"));
    assert!(codes.is_empty() && gone == 0, "{codes:?}");
    assert_eq!(reasons, ["Baseline: it is in the baseline"]);
    // The same in another function is a different finding, and the known one is gone.
    let renamed = wrong()
        .replace("\tf", "\th")
        .replace("f:", "h:")
        .replace("- f", "- h");
    let ((codes, _), gone) = report(&renamed);
    assert_eq!((codes, gone), (vec!["CFI001".to_owned()], 1));
    let other = written.replace("unspool.check.baseline", "unspool.check");
    assert!(matches!(
        Baseline::from_json(&other),
        Err(BaselineError::OtherDocument)
    ));
    assert!(matches!(
        Baseline::from_json("{}"),
        Err(BaselineError::Json(_))
    ));
}

/// The rules of the standard are in `sarif.schema.json`, by clause; Python's `jsonschema` applies
/// them.
#[test]
fn sarif_output_follows_its_schema() {
    let folder = Folder::new();
    let allowed = wrong().replace(CALL, "\tcall\tg\t# unspool: allow CFI001 it is known\n");
    let reasonless = wrong().replace(CALL, "\tcall\tg\t# unspool: allow CFI001\n");
    folder.write("allowed.s", &allowed);
    folder.tool("as", "-o bare.o allowed.s");
    let bare = Arc::new(ElfFile::open(folder.join("bare.o")).unwrap());
    let mut by_file = Suppressor {
        files: vec![(
            "known".into(),
            Suppressions::parse("CFI001 bare.o:f as it is").unwrap(),
        )],
        ..suppressor()
    };
    let reports = [
        source_report(&folder, "a push, at 100%.s", &wrong()),
        source_report(&folder, "allowed.s", &allowed),
        source_report(&folder, "reasonless.s", &reasonless),
        FileReport::from_assembled(&bare, &CheckOptions::default(), &mut by_file).unwrap(),
    ];
    let out = serde_json::to_string_pretty(&sarif_log(&reports, "1.0")).unwrap();
    let schema = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sarif.schema.json");
    let validate = |log: &str| {
        let log = folder.write("log.sarif", log);
        let mut validator = tool(
            packages::path("/usr/bin/jsonschema")
                .unwrap()
                .to_str()
                .unwrap(),
        );
        validator.arg("-i").arg(log).arg(schema).finish()
    };
    let validation = validate(&out);
    assert!(validation.status.success(), "{validation}\n{out}");
    // This shows that the rules are applied.
    let bad = validate(&out.replace("\"startLine\": 6", "\"startLine\": 0"));
    assert!(!bad.status.success());

    let log: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(log["version"], "2.1.0");
    let run = &log["runs"][0];
    let rules = run["tool"]["driver"]["rules"].as_array().unwrap();
    let results = run["results"].as_array().unwrap();
    let has_rule = |result: &Value| rules.iter().any(|rule| rule["id"] == result["ruleId"]);
    assert!(results.iter().all(has_rule), "{out}");
    let kinds: Vec<String> = results
        .iter()
        .map(|result| {
            format!(
                "{} {} {}",
                result["ruleId"], result["level"], result["suppressions"][0]["kind"]
            )
        })
        .collect();
    let expected = [
        "\"CFI001\" \"error\" null",
        "\"CFI001\" \"error\" \"inSource\"",
        "\"CFI001\" \"error\" null",
        "\"CFI015\" \"error\" null",
        "\"CFI001\" \"error\" \"external\"",
    ];
    assert_eq!(kinds, expected, "{out}");
    let place = &results[0]["locations"][0]["physicalLocation"];
    assert_eq!(place["region"]["startLine"], 6);
    assert!(
        place["artifactLocation"]["uri"]
            .as_str()
            .is_some_and(|uri| uri.ends_with("/a%20push%2C%20at%20100%25.s")),
        "{out}"
    );
}
