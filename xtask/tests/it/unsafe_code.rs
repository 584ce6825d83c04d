//! The locations of `unsafe`, which docs/safety.md relies on, and of files that are opened, which
//! docs/security.md relies on.

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

/// Sources that open files by themselves, and what these are.
const OPENERS: &[(&str, &str)] = &[
    ("bpf/src/btf.rs", "the kernel's"),
    ("cli/src/commands/cc.rs", "in a folder of its own"),
    ("cli/src/commands/check/host.rs", "in a folder of its own"),
    ("cli/src/commands/doctor/", "the kernel's, and a new one"),
    ("cli/src/commands/record.rs", "the kernel's"),
    ("cli/src/commands/view/server.rs", "the kernel's"),
    ("files/", "this is the one"),
    ("host/", "the kernel's"),
    ("perf-events/src/event.rs", "the kernel's"),
    ("process/src/live/memory.rs", "the kernel's"),
    ("process/src/live/write.rs", "the kernel's"),
    ("process/src/procfs.rs", "the kernel's"),
    ("sampler/", "the kernel's"),
    ("single-step/", "the kernel's"),
    ("symbols/src/kernel", "the kernel's"),
    ("symbols/src/perf_map.rs", "the kernel's"),
    ("symbols/src/vdso.rs", "the kernel's"),
    ("testing/", "tests"),
];

/// Whether a line opens, writes or renames a file without `unspool-files`.
fn opens_a_file(line: &str) -> bool {
    let calls = ["open", "create", "create_new", "options"].map(|name| format!("File::{name}("));
    let names = ["read", "read_to_string", "write", "copy", "rename"];
    let calls = calls
        .into_iter()
        .chain(names.map(|name| format!("fs::{name}(")));
    let mut calls = calls.chain(["OpenOptions::new(", "Mmap::map("].map(str::to_owned));
    calls.any(|call| {
        let of_others = |at: usize| line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        line.match_indices(&call).any(|(at, _)| !of_others(at))
    })
}

/// Sources that read variables of the environment by themselves, and which.
const READERS: &[(&str, &str)] = &[
    ("cli/src/commands/record/display.rs", "\"TERM\""),
    (
        "cli/src/commands/report/names.rs",
        "\"DEBUGINFOD_PROGRESS\"",
    ),
    ("files/src/environment.rs", "name"),
    ("testing/", ""),
];

#[test]
fn the_environment_is_read_by_one_crate() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    let mut paths = Vec::new();
    for entry in fs::read_dir(&crates).unwrap() {
        sources(&entry.unwrap().path().join("src"), &mut paths);
    }
    for path in paths {
        let text = fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]\nmod ").next().unwrap();
        let code = code.split("#[cfg(all(test, ").next().unwrap();
        let name = path.strip_prefix(&crates).unwrap().to_str().unwrap();
        for argument in ["env::var(", "env::var_os("]
            .iter()
            .flat_map(|call| code.split(call).skip(1))
        {
            let is_known = |(prefix, variable): &(&str, &str)| {
                name.starts_with(prefix) && argument.starts_with(variable)
            };
            assert!(
                READERS.iter().any(is_known),
                "{name}: by `unspool_files::environment`"
            );
        }
    }
}

#[test]
fn files_are_opened_by_one_crate() {
    assert!(opens_a_file("let text = std::fs::read(path)?;") && opens_a_file("File::open(path)"));
    assert!(!opens_a_file("ElfFile::open(path)") && !opens_a_file("unspool_files::read(path, 1)"));
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    let mut paths = Vec::new();
    for entry in fs::read_dir(&crates).unwrap() {
        sources(&entry.unwrap().path().join("src"), &mut paths);
    }
    let mut needed = [false; OPENERS.len()];
    for path in paths.iter().filter(|path| !path.ends_with("tests.rs")) {
        let text = fs::read_to_string(path).unwrap();
        let code = text.split("#[cfg(test)]\nmod ").next().unwrap();
        let name = path.strip_prefix(&crates).unwrap().to_str().unwrap();
        let Some(line) = code.lines().find(|line| opens_a_file(line)) else {
            continue;
        };
        let opener = OPENERS
            .iter()
            .position(|(prefix, _)| name.starts_with(prefix));
        let opener = opener.unwrap_or_else(|| panic!("{name}: by `unspool-files`: {line}"));
        needed[opener] = true;
    }
    let needless = OPENERS.iter().zip(needed).filter(|(_, needed)| !needed);
    assert_eq!(needless.count(), 0, "{needed:?}");
}
