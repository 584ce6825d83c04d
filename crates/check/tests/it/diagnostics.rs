//! The list of findings in `docs/` matches the code.

use std::collections::BTreeSet;

use unspool_check::FindingCode;

#[test]
fn each_kind_of_finding_is_documented_and_no_other() {
    let page = include_str!("../../../../docs/diagnostics.md");
    let headings = page.lines().filter_map(|line| line.strip_prefix("## CFI"));
    let documented: BTreeSet<String> = headings.map(|rest| format!("CFI{rest}")).collect();
    let known: BTreeSet<String> = FindingCode::all()
        .map(|code| format!("{code} {}", code.name()))
        .collect();
    assert_eq!(documented, known);
    for code in FindingCode::all() {
        let text = code.explanation();
        let (first, rest) = text.split_once('\n').unwrap_or_default();
        assert!(
            first
                .trim_end_matches('.')
                .eq_ignore_ascii_case(code.summary()),
            "{first}"
        );
        assert!(
            rest.contains("**Cause.** ") && rest.contains("**Remedy.** "),
            "{text}"
        );
        assert!(!text.contains("## "), "{text}");
    }
}

#[test]
fn kinds_are_known_by_number_and_by_name() {
    assert_eq!(
        FindingCode::from_name("cfi001"),
        Some(FindingCode::CfaOffset)
    );
    assert_eq!(
        FindingCode::from_name("CFI014"),
        Some(FindingCode::Unreached)
    );
    assert_eq!(
        FindingCode::from_name("saved-elsewhere"),
        Some(FindingCode::SavedElsewhere)
    );
    for unknown in ["CFI000", "CFI1", "", "cfa"] {
        assert_eq!(FindingCode::from_name(unknown), None, "{unknown}");
    }
}
