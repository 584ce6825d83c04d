//! The list of findings in `docs/` is that of the code.

use std::collections::BTreeSet;

use unspool_check::Code;

#[test]
fn each_kind_of_finding_is_documented_and_no_other() {
    let page = include_str!("../../../docs/diagnostics.md");
    let rows = page.lines().filter(|line| line.starts_with("| CFI"));
    let cells = |row: &str| row.split('|').map(|cell| cell.trim().to_owned()).collect();
    let documented: BTreeSet<(String, String)> = rows
        .filter_map(|row| {
            let cells: Vec<String> = cells(row);
            Some((cells.get(1)?.clone(), cells.get(2)?.clone()))
        })
        .collect();
    let known: BTreeSet<(String, String)> = Code::all()
        .map(|code| {
            let name = format!("{} {}", code.id(), code.name());
            (name, code.summary().to_owned())
        })
        .collect();
    assert_eq!(documented, known);
}
