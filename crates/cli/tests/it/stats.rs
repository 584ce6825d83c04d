//! `unspool stats` as a user calls it.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use unspool_testing::Finish as _;

use crate::harness;
use crate::json;

const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";

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

/// In a folder, all files with a table are counted, each once, and no others.
#[test]
fn a_folder_is_what_is_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let copy = |from: &str, to: &str| {
        std::fs::create_dir_all(path.join(to).parent().unwrap()).unwrap();
        std::fs::copy(from, path.join(to)).unwrap();
    };
    copy(LOADER, "ld.so");
    copy("/bin/true", "below/true");
    std::fs::write(path.join("text"), "no ELF file\n").unwrap();
    symlink("ld.so", path.join("again")).unwrap();
    std::fs::hard_link(path.join("ld.so"), path.join("below/again")).unwrap();
    let folder = path.to_str().unwrap();

    let named = json(&[LOADER, "/bin/true"]);
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
