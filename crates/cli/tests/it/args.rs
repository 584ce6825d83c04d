//! `unspool stack --args` and `--locals` as a user calls them. The values are tested in
//! `unspool-display-values`.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use unspool_elf::ElfFile;
use unspool_testing::Folder;

use crate::harness;
use crate::json;

/// A folder with a program that is killed, and with types in CTF.
fn program(name: &str) -> Folder {
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../display-values/tests/programs");
    let folder = Folder::new();
    let source = programs.join(name);
    let words = format!("-O2 -gctf -rdynamic -o program {}", source.display());
    folder.tool("gcc", &words);
    folder
}

/// The report on the program in a folder, in which it is killed, and the messages.
fn report(folder: &Folder, cache: &Path, words: &str) -> (String, String) {
    let mut stack = harness::unspool();
    stack.env("XDG_CACHE_HOME", cache);
    let words = format!("stack {words} -o report -- ./program");
    let output = folder.started(&mut stack, &words).output().unwrap();
    let report = fs::read_to_string(folder.join("report")).unwrap();
    (report, String::from_utf8(output.stderr).unwrap())
}

/// The first thread's frames of a report: each with its function's name and arguments, if known.
fn with_arguments(report: &str) -> Vec<(String, Vec<Value>)> {
    let report = json::document(report);
    let frames = report["threads"][0]["frames"].as_array().unwrap();
    let known = frames.iter().filter_map(|frame| {
        let arguments = frame["arguments"].as_array()?.clone();
        Some((frame["symbol"].as_str()?.to_owned(), arguments))
    });
    known.collect()
}

/// A cache may be older than the program that reads it.
#[test]
fn tables_of_another_version_in_the_cache_are_made_anew_without_a_word() {
    let (folder, cache) = (program("arguments.c"), Folder::new());
    // A table of a file that was just written is not stored.
    let program = folder.join("program");
    while ElfFile::open(&program).unwrap().stamp().is_none() {
        std::thread::yield_now();
    }
    // Addresses differ in each run.
    let certainties = |report: &str| -> Vec<(String, Vec<Value>)> {
        let frames = with_arguments(report).into_iter();
        let certainty = |argument: &Value| argument["certainty"].clone();
        frames
            .map(|(function, arguments)| (function, arguments.iter().map(certainty).collect()))
            .collect()
    };
    let (first, said) = report(&folder, &cache, "--args --format json");
    assert!(!said.contains("version"), "{said}");
    let tables = || -> Vec<PathBuf> {
        let files = fs::read_dir(cache.join("unspool")).unwrap();
        let files = files.map(|file| file.unwrap().path());
        let name = |path: &PathBuf| {
            path.to_str().unwrap().ends_with(".args.unspool") && !path.is_symlink()
        };
        let mut tables: Vec<PathBuf> = files.filter(name).collect();
        tables.sort();
        tables
    };
    let made: Vec<_> = tables().iter().map(|at| fs::read(at).unwrap()).collect();
    assert!(!made.is_empty());
    // The version follows eight magic bytes.
    for (flawed, words) in [(8, ""), (0, "; another is made")] {
        for (path, bytes) in tables().iter().zip(&made) {
            let mut other = bytes.clone();
            other[flawed] ^= 0x7f;
            fs::write(path, other).unwrap();
        }
        let (again, said) = report(&folder, &cache, "--args --format json");
        assert_eq!(certainties(&again), certainties(&first));
        let about: Vec<_> = said.lines().filter(|l| l.contains(".args.")).collect();
        assert_eq!(about.is_empty(), words.is_empty(), "{said}");
        assert!(about.iter().all(|line| line.ends_with(words)), "{said}");
        let now: Vec<_> = tables().iter().map(|at| fs::read(at).unwrap()).collect();
        assert!(now == made, "byte {flawed}: not as they were");
    }
}

/// What is known of an argument or a variable is in the fields of `docs/json.md`, and in text.
#[test]
fn values_are_shown_with_what_is_known_of_them() {
    let folder = Folder::new();
    let source =
        "int last(int kept) { char own[4] = \"abc\"; __builtin_trap(); return kept + own[0]; }
        int main(void) { return last(7); }";
    folder.write("a.c", source);
    folder.tool("gcc", "-O0 -g -o program a.c");
    let cache = harness::new_cache();
    let (report, _) = report(&folder, cache, "--args --locals --format json");
    let frames = with_arguments(&report);
    let (_, arguments) = frames.iter().find(|(name, _)| name == "last").unwrap();
    let kept = &arguments[0];
    assert_eq!(
        (&kept["name"], &kept["type"]),
        (&"kept".into(), &"int".into())
    );
    assert_eq!(
        (&kept["value"], &kept["current_value"]),
        (&"7".into(), &"7".into())
    );
    assert_eq!(
        (&kept["certainty"], &kept["caller_depth"]),
        (&"exact".into(), &0.into())
    );
    let report = json::document(report);
    let own = &report["threads"][0]["frames"][0]["variables"][0];
    assert_eq!(
        (&own["name"], &own["value"]),
        (&"own".into(), &"\"abc\"".into())
    );
    let (text, _) = self::report(&folder, cache, "--args --locals");
    assert!(
        text.contains("kept: int = 7") || text.contains("kept: int"),
        "{text}"
    );
}
