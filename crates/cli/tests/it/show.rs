//! `unspool show`, compared with readelf's entries.

use std::process::Output;

use unspool_testing::{Finish as _, tool};

use crate::harness;
use crate::json;

/// gcc's startup code leaves gaps between its entries.
const FILE: &str = "/bin/true";

fn show(arguments: &[&str]) -> Output {
    show_file(FILE, arguments)
}

fn show_file(file: &str, arguments: &[&str]) -> Output {
    let mut command = harness::unspool();
    let command = command.arg("show").args(arguments).arg(file);
    command.output().unwrap()
}

fn readelf(arguments: &[&str]) -> String {
    tool("readelf").args(arguments).succeed()
}

/// The bounds of the entries, ascending.
fn entries() -> Vec<(u64, u64)> {
    let text = readelf(&["-wf", FILE]);
    let hex = |digits: &str| u64::from_str_radix(digits, 16).unwrap();
    let bounds = text.lines().filter_map(|line| {
        let (start, end) = line.split_once(" pc=")?.1.split_once("..")?;
        Some((hex(start), hex(end)))
    });
    let mut bounds: Vec<_> = bounds.collect();
    bounds.sort_unstable();
    bounds
}

#[test]
fn an_address_in_a_gap_names_its_neighbours() {
    let entries = entries();
    let text = |(start, end): (u64, u64)| format!("fn {start:#x}..{end:#x}");
    let json = |(start, end): (u64, u64)| (format!("{start:#x}"), format!("{end:#x}"));
    let holes = entries.windows(2).filter_map(|pair| {
        let [before, after] = <[_; 2]>::try_from(pair).unwrap();
        (before.1 < after.0).then_some((Some(before), before.1, Some(after)))
    });
    let (first, last) = (*entries.first().unwrap(), *entries.last().unwrap());
    let mut cases: Vec<_> = holes.take(3).collect();
    assert_eq!(cases.len(), 3, "{entries:x?}");
    cases.push((None, first.0 - 1, Some(first)));
    cases.push((Some(last), last.1, None));
    for (before, pc, after) in cases {
        let pc = format!("{pc:#x}");
        let output = show(&["--pc", &pc]);
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{pc}: {err}");
        assert_eq!(output.stdout, b"", "{pc}");
        assert!(err.contains(&format!(" covers {pc}: ")), "{pc}: {err}");
        for neighbour in [before, after].into_iter().flatten() {
            assert!(err.contains(&text(neighbour)), "{pc}: {err}");
        }

        let output = show(&["--format", "json", "--pc", &pc]);
        assert_eq!(output.status.code(), Some(1), "{pc}");
        let report = json::document(output.stdout);
        assert_eq!(report["entries"].as_array().unwrap().len(), 0);
        for (key, expected) in [("before", before), ("after", after)] {
            let found = &report["neighbours"][key];
            let bounds = found["start"].as_str().zip(found["end"].as_str());
            let bounds = bounds.map(|(start, end)| (start.to_owned(), end.to_owned()));
            assert_eq!(bounds, expected.map(json), "{pc}: {key}");
        }
    }
}

#[test]
fn addresses_are_hexadecimal_with_and_without_a_prefix() {
    let (start, _) = *entries().first().unwrap();
    let with = show(&["--pc", &format!("{start:#x}")]);
    assert_eq!(with.status.code(), Some(0));
    assert_eq!(show(&["--pc", &format!("{start:x}")]), with);
    for wrong in ["", "0x", "main", "0x1g", "-1", "10000000000000000"] {
        let output = show(&[&format!("--pc={wrong}")]);
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{wrong}: {err}");
        assert!(err.contains("hexadecimal") || wrong.is_empty(), "{err}");
    }
}

/// In JSON, each row has the instructions that make it; in text they are comments.
#[test]
fn instructions_are_shown_with_their_rows() {
    let output = show_file("/bin/true", &["--instructions", "--format", "json"]);
    let report = json::document(output.stdout);
    let entry = &report["entries"][0];
    let first = &entry["cie"]["instructions"][0];
    assert_eq!(first["instruction"], "DW_CFA_def_cfa rsp, 8");
    assert!(first["section_offset"].is_u64() && first["count"] == 1);
    assert!(entry["rows"][0]["instructions"].is_array());
    assert!(entry["instructions_past_end"].is_array());
    let output = show_file("/bin/true", &["--instructions"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let line = format!(
        "  # {:#6x}  DW_CFA_def_cfa rsp, 8\n",
        first["section_offset"].as_u64().unwrap()
    );
    assert!(
        text.contains("  # FDE at 0x") && text.contains(&line),
        "{text}"
    );
}
