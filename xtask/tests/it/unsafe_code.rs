//! The locations of `unsafe`, which docs/safety.md relies on.

use std::fs;
use std::path::{Path, PathBuf};

pub(crate) fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

/// The compiler denies `unsafe` unless it is expected.
#[test]
fn unsafe_code_is_in_modules_named_sys() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    let mut paths = Vec::new();
    for entry in fs::read_dir(&crates).unwrap() {
        sources(&entry.unwrap().path().join("src"), &mut paths);
    }
    assert!(paths.len() > 100, "{}", paths.len());
    let is_expected = |path: &&PathBuf| fs::read_to_string(path).unwrap().contains("unsafe_code");
    let expecting: Vec<_> = paths.iter().filter(is_expected).collect();
    assert!(expecting.len() > 5, "{expecting:?}");
    for path in expecting {
        let is_sys = path.iter().any(|part| part == "sys" || part == "sys.rs");
        let is_forbidding = fs::read_to_string(path)
            .unwrap()
            .contains("#![forbid(unsafe_code)]");
        assert!(is_sys || is_forbidding, "{}", path.display());
    }
    for name in ["rows", "cfi", "compiled-table"] {
        let root = fs::read_to_string(crates.join(name).join("src/lib.rs")).unwrap();
        assert!(root.contains("#![forbid(unsafe_code)]"), "{name}");
    }
}
