//! The list of findings in `docs/` is that of the code.

use std::collections::BTreeSet;

use unspool_check::Code;

#[test]
fn each_kind_of_finding_is_documented_and_no_other() {
    let page = include_str!("../../../docs/diagnostics.md");
    let rows = page.lines().filter(|line| line.starts_with("| CFI"));
    let documented: BTreeSet<String> = rows
        .filter_map(|row| Some(row.split('|').nth(1)?.trim().to_owned()))
        .collect();
    let known: BTreeSet<String> = Code::all()
        .map(|code| format!("{} {}", code.id(), code.name()))
        .collect();
    assert_eq!(documented, known);
}
