//! The list of findings in `docs/` is that of the code.

use std::collections::BTreeSet;

use unspool_check::Code;

#[test]
fn each_kind_of_finding_is_documented_and_no_other() {
    let page = include_str!("../../../../docs/diagnostics.md");
    let headings = page.lines().filter_map(|line| line.strip_prefix("## CFI"));
    let documented: BTreeSet<String> = headings.map(|rest| format!("CFI{rest}")).collect();
    let known: BTreeSet<String> = Code::all()
        .map(|code| format!("{} {}", code.id(), code.name()))
        .collect();
    assert_eq!(documented, known);
    for code in Code::all() {
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
    assert_eq!(Code::named("cfi001"), Some(Code::CfaOffset));
    assert_eq!(Code::named("CFI014"), Some(Code::Unreached));
    assert_eq!(Code::named("saved-elsewhere"), Some(Code::SavedElsewhere));
    for unknown in ["CFI000", "CFI1", "", "cfa"] {
        assert_eq!(Code::named(unknown), None, "{unknown}");
    }
}
