//! `unspool stats` as a user calls it: its counts equal those of binutils.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use unspool_testing::{Finish as _, tool};

use crate::harness;
use crate::json;

/// From C compilers and assembly, from C++ compilers, and from assembly alone.
const FILES: [&str; 3] = [
    "/lib/x86_64-linux-gnu/libc.so.6",
    "/lib/x86_64-linux-gnu/libstdc++.so.6",
    "/lib64/ld-linux-x86-64.so.2",
];

fn run(mut command: Command, arguments: &[&str], status: i32) -> String {
    command.args(arguments).finish().ended_with(status).out
}

fn stats(arguments: &[&str]) -> String {
    let arguments = [&["stats"], arguments].concat();
    run(harness::unspool(), &arguments, 0)
}

fn json(arguments: &[&str]) -> Value {
    let text = stats(&[&["--format", "json"], arguments].concat());
    json::document(text)
}

/// readelf's number of CIEs and FDEs, and of each instruction.
fn by_readelf(file: &str) -> (u64, u64, BTreeMap<String, u64>) {
    let text = run(tool("readelf"), &["-wNf", "-W", file], 0);
    let count = |what| text.lines().filter(|line| line.contains(what)).count() as u64;
    let mut opcodes = BTreeMap::new();
    for line in text.lines() {
        if let Some(instruction) = line.strip_prefix("  DW_CFA_") {
            let name = instruction.split([':', ' ']).next().unwrap();
            *opcodes.entry(name.to_owned()).or_default() += 1;
        }
    }
    (count(" CIE"), count(" FDE "), opcodes)
}

/// The size of `.eh_frame` by readelf.
fn section_bytes(file: &str) -> u64 {
    let text = run(tool("readelf"), &["-SW", file], 0);
    let line = text.lines().find(|line| line.contains(" .eh_frame "));
    let size = line.unwrap().split_whitespace().rev().nth(5).unwrap();
    u64::from_str_radix(size, 16).unwrap()
}

#[test]
fn counts_are_those_of_readelf() {
    let report = json(&FILES);
    let mut sum = BTreeMap::<String, u64>::new();
    for (file, figures) in FILES.iter().zip(report["files"].as_array().unwrap()) {
        assert_eq!(figures["file"], *file);
        let (cies, fdes, opcodes) = by_readelf(file);
        assert!(fdes > 200 && opcodes.len() > 10, "{file}: {opcodes:?}");
        assert_eq!(
            (&figures["cies"], &figures["fdes"]),
            (&cies.into(), &fdes.into())
        );
        let counted: BTreeMap<String, u64> =
            serde_json::from_value(figures["opcodes"].clone()).unwrap();
        assert_eq!(counted, opcodes, "{file}");
        assert_eq!(figures["section_bytes"], section_bytes(file), "{file}");
        for (name, count) in opcodes {
            *sum.entry(name).or_default() += count;
        }
    }
    let total: BTreeMap<String, u64> =
        serde_json::from_value(report["total"]["opcodes"].clone()).unwrap();
    assert_eq!(total, sum);
    assert_eq!(report["total"]["file_count"], 3);
}

#[test]
fn native_bytes_are_those_that_are_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let object = folder.path().join("native.so");
    let object = object.to_str().unwrap();
    let file = FILES[2];
    run(
        harness::unspool(),
        &["compile", "--as", "native", file, "-o", object],
        0,
    );
    let size = run(tool("size"), &[object], 0);
    let columns = size.lines().last().unwrap().split_whitespace();
    let loaded: u64 = columns
        .take(3)
        .map(|word| word.parse::<u64>().unwrap())
        .sum();
    let figures = &json(&[file])["files"][0];
    assert_eq!(figures["native_bytes"], loaded);
    assert_eq!(figures["native_section_bytes"], figures["section_bytes"]);
}

/// In a folder, all files with a table are counted, each once, and no others.
#[test]
fn a_folder_is_what_is_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let copy = |from: &str, to: &str| {
        std::fs::create_dir_all(path.join(to).parent().unwrap()).unwrap();
        std::fs::copy(from, path.join(to)).unwrap();
    };
    copy(FILES[2], "ld.so");
    copy("/bin/true", "below/true");
    std::fs::write(path.join("text"), "no ELF file\n").unwrap();
    symlink("ld.so", path.join("again")).unwrap();
    std::fs::hard_link(path.join("ld.so"), path.join("below/again")).unwrap();
    let folder = path.to_str().unwrap();

    let named = json(&[FILES[2], "/bin/true"]);
    let found = json(&[folder]);
    assert_eq!(found["files"].as_array().unwrap().len(), 2);
    assert_eq!(found["total"], named["total"]);
    let total = json(&["--total", folder]);
    assert_eq!(total["files"], Value::Array(vec![]));
    assert_eq!(total["total"], named["total"]);

    // A head, a line for each, and one for all.
    let table = stats(&["--format", "table", folder]);
    assert_eq!(table.lines().count(), 5, "{table}");
    let last = table.lines().last().unwrap();
    let fdes = &named["total"]["fdes"];
    assert!(
        last.starts_with(&format!("| total | {fdes} | 0 |")),
        "{last}"
    );
    let text = stats(&["--total", folder]);
    assert!(text.starts_with("total: 2 files\n"), "{text}");

    let empty = Path::new(folder).join("empty");
    std::fs::create_dir(&empty).unwrap();
    run(harness::unspool(), &["stats", empty.to_str().unwrap()], 2);
}
