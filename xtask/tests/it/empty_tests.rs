//! Targets that are not built for tests have none.

use std::fs;
use std::path::Path;

use crate::unsafe_code::sources;

/// `test = false` and `doctest = false` in a manifest would hide added tests.
#[test]
fn libraries_that_are_not_tested_have_no_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let crates = fs::read_dir(root.join("crates")).unwrap();
    let folders = crates.map(|entry| entry.unwrap().path());
    for folder in folders.chain([root.join("xtask"), root.join("bench")]) {
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        let library = manifest.split("[lib]\n").nth(1).unwrap_or_default();
        let library = library.split("\n[").next().unwrap();
        let mut paths = Vec::new();
        sources(&folder.join("src"), &mut paths);
        for path in paths {
            let text = fs::read_to_string(&path).unwrap();
            let has_tests = text.contains("#[test]") || text.contains("proptest!");
            let is_tested = !library.lines().any(|line| line == "test = false");
            assert!(is_tested || !has_tests, "{}", path.display());
            let has_examples = opens_example(&text);
            let is_tested = !library.contains("doctest = false");
            assert!(is_tested || !has_examples, "{}", path.display());
        }
    }
}

/// Whether documentation has a code block that is Rust by default.
fn opens_example(text: &str) -> bool {
    let fence = |line: &&str| {
        let line = line.trim_start();
        line.starts_with("/// ```") || line.starts_with("//! ```")
    };
    let mut opening = text.lines().filter(fence).step_by(2);
    opening
        .any(|line| line.ends_with("```") || line.contains("```rust") || line.contains("```no_run"))
}
