//! `unspool show`, compared with readelf's entries.

use std::collections::BTreeMap;
use std::process::Output;

use serde_json::Value;
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

/// The C library, with entries from compilers and from assembly files.
const LIBC: &str = "/lib/x86_64-linux-gnu/libc.so.6";

/// The names of the instructions of each CIE and FDE, by its offset in `.eh_frame`.
type NamesByAddress = BTreeMap<u64, Vec<String>>;

fn names_by_readelf() -> NamesByAddress {
    let text = readelf(&["-wNf", LIBC]);
    let mut names = NamesByAddress::new();
    let mut entry = 0;
    for line in text.lines() {
        if let Some(instruction) = line.strip_prefix("  DW_CFA_") {
            let name = instruction.split([':', ' ']).next().unwrap();
            // unspool does not print how its operand is stored.
            let name = match name.strip_prefix("advance_loc") {
                Some(_) => "advance_loc",
                None => name.trim_end_matches("_sf").trim_end_matches("_extended"),
            };
            names.entry(entry).or_default().push(name.to_owned());
        } else if line.contains(" CIE") || line.contains(" FDE ") {
            entry = u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap();
        }
    }
    names
}

fn name(instruction: &str) -> &str {
    let name = instruction.strip_prefix("DW_CFA_").unwrap();
    name.split(' ').next().unwrap()
}

#[test]
fn every_instruction_is_shown() {
    let by_readelf = names_by_readelf();
    assert!(by_readelf.len() > 1000, "{}", by_readelf.len());
    let output = show_file(LIBC, &["--instructions", "--format", "json"]);
    let report = json::document(output.stdout);
    let names = |instructions: &Value| -> Vec<String> {
        let instructions = instructions.as_array().unwrap().iter();
        let repeated = instructions.flat_map(|one| {
            let count = usize::try_from(one["count"].as_u64().unwrap()).unwrap();
            let name = name(one["instruction"].as_str().unwrap());
            std::iter::repeat_n(name.to_owned(), count)
        });
        repeated.collect()
    };
    let mut shown = NamesByAddress::new();
    for entry in report["entries"].as_array().unwrap() {
        let rows = entry["rows"].as_array().unwrap().iter();
        let mut all: Vec<_> = rows.flat_map(|row| names(&row["instructions"])).collect();
        all.extend(names(&entry["instructions_past_end"]));
        shown.insert(entry["section_offset"].as_u64().unwrap(), all);
        let cie = &entry["cie"];
        let offset = cie["section_offset"].as_u64().unwrap();
        shown.insert(offset, names(&cie["instructions"]));
    }
    let padding_counts =
        |names: &NamesByAddress| names.values().flatten().filter(|n| *n == "nop").count();
    assert!(padding_counts(&shown) > 1000);
    for (offset, expected) in &by_readelf {
        assert_eq!(shown.get(offset), Some(expected), "entry at {offset:#x}");
    }
    assert_eq!(names_in_text(), of_entries_with_their_cie(&report, &shown));
}

/// The instructions of each FDE in the text, its CIE's first.
fn names_in_text() -> NamesByAddress {
    let output = show_file(LIBC, &["--instructions"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let mut names = NamesByAddress::new();
    let mut entry = 0;
    for line in text.lines() {
        if let Some((_, rest)) = line.split_once("# FDE at 0x") {
            entry = u64::from_str_radix(rest.split(',').next().unwrap(), 16).unwrap();
        } else if let Some((_, instruction)) = line.split_once("  DW_CFA_") {
            let (instruction, times) = match instruction.split_once(" ×") {
                Some((instruction, times)) => (instruction, times.parse().unwrap()),
                None => (instruction, 1),
            };
            let name = instruction.split(' ').next().unwrap().to_owned();
            let names = names.entry(entry).or_default();
            names.extend(std::iter::repeat_n(name, times));
        }
    }
    names
}

fn of_entries_with_their_cie(report: &Value, names: &NamesByAddress) -> NamesByAddress {
    let entries = report["entries"].as_array().unwrap().iter();
    let with_cie = entries.map(|entry| {
        let offset = |entry: &Value| entry["section_offset"].as_u64().unwrap();
        let mut all = names[&offset(&entry["cie"])].clone();
        all.extend(names[&offset(entry)].clone());
        (offset(entry), all)
    });
    with_cie.collect()
}
