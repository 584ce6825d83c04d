//! `unspool ctf diff` compared with abidiff: single edits of the small library in `ctf_diff/`, each
//! with the verdict expected of both.

use std::fs;
use std::path::Path;
use std::process::Output;

use unspool_testing::{command, packages, sample};

use crate::json;

const SOURCE: &str = include_str!("../ctf_diff/lib.c");
const EDITS: &str = include_str!("../ctf_diff/edits.txt");

/// An edit, and the expected verdict.
struct SourceEdit<'t> {
    name: &'t str,
    ours: &'t str,
    abidiff: &'t str,
    edited: String,
}

fn edits() -> Vec<SourceEdit<'static>> {
    let blocks = EDITS.split("\n\n").map(str::trim_start);
    blocks
        .filter(|block| !block.starts_with('#'))
        .map(edit)
        .collect()
}

fn edit(block: &'static str) -> SourceEdit<'static> {
    let (head, lines) = block.split_once('\n').unwrap();
    let (name, verdicts) = head.split_once(": ").unwrap();
    let (ours, abidiff) = verdicts
        .split_once(", abidiff ")
        .unwrap_or((verdicts, verdicts));
    let part = |sign: &str| -> Vec<&str> {
        let lines = lines.lines().filter_map(|line| line.strip_prefix(sign));
        lines
            .map(|line| line.strip_prefix(' ').unwrap_or(line))
            .collect()
    };
    let mut edited = SOURCE.to_owned();
    let (gone, come) = (part("-"), part("+"));
    assert_eq!(gone.len(), come.len(), "{name}");
    for (gone, come) in gone.into_iter().zip(come) {
        assert!(edited.contains(gone), "{name}: {gone}");
        edited = edited.replacen(gone, come, 1);
    }
    SourceEdit {
        name,
        ours,
        abidiff,
        edited,
    }
}

fn run(folder: &Path, program: impl AsRef<Path>, words: &str) -> Output {
    let mut command = command(program.as_ref());
    let words = words.split_whitespace();
    command.args(words).current_dir(folder).output().unwrap()
}

fn build(folder: &Path, name: &str, source: &str) {
    fs::write(folder.join(format!("{name}.c")), source).unwrap();
    let gcc = packages::path("/usr/bin/gcc").unwrap();
    // Without that, ld has no types of thread-local variables.
    for (flag, form) in [("-g", "dwarf"), ("-gctf -Wl,--ctf-variables", "ctf")] {
        let words = format!("-w {flag} -O1 -fPIC -shared -o {name}.{form}.so {name}.c");
        let output = run(folder, &gcc, &words);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {errors}");
    }
}

/// Unspool's verdict for two files, from the report and the exit status.
fn ours(folder: &Path, files: &str) -> &'static str {
    let words = format!("ctf diff {files} --format json");
    let output = run(folder, env!("CARGO_BIN_EXE_unspool"), &words);
    let report = json::document(output.stdout);
    let is_breaking = report["breaking"].as_bool().unwrap();
    assert_eq!(output.status.code(), Some(i32::from(is_breaking)));
    match (
        is_breaking,
        report["changes"].as_array().unwrap().is_empty(),
    ) {
        (true, _) => "breaks",
        (false, true) => "none",
        (false, false) => "compatible",
    }
}

/// abidiff's verdict: changes and removals are incompatible; harmless changes and additions are
/// not.
fn abidiff(folder: &Path, files: &str) -> &'static str {
    let program = packages::path("/usr/bin/abidiff").unwrap();
    let output = run(folder, &program, files);
    if output.status.success() {
        let harmless = run(folder, &program, &format!("--harmless {files}"));
        return if harmless.status.success() {
            "none"
        } else {
            "compatible"
        };
    }
    let report = String::from_utf8(output.stdout).unwrap();
    let summaries = report
        .lines()
        .filter_map(|line| line.split_once(" changes summary: "));
    let counted = summaries.flat_map(|(_, counts)| counts.split(", ").take(2));
    let is_none = |count: &str| count.starts_with("0 ");
    if counted.into_iter().all(is_none) {
        "compatible"
    } else {
        "breaks"
    }
}

/// From DWARF and from CTF the verdict is the same, and abidiff's, except for the listed ones.
#[test]
fn verdicts_are_those_of_abidiff() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    build(folder, "old", SOURCE);
    let edits = edits();
    assert!(edits.len() >= 50, "{}", edits.len());
    let mut wrong = Vec::new();
    for edit in sample(&edits, 3) {
        build(folder, "new", &edit.edited);
        let lines = [
            (
                "DWARF",
                edit.ours,
                ours(folder, "old.dwarf.so new.dwarf.so"),
            ),
            ("CTF", edit.ours, ours(folder, "old.ctf.so new.ctf.so")),
            (
                "DWARF against CTF",
                edit.ours,
                ours(folder, "old.dwarf.so new.ctf.so"),
            ),
            (
                "abidiff",
                edit.abidiff,
                abidiff(folder, "old.dwarf.so new.dwarf.so"),
            ),
        ];
        for (who, expected, said) in lines {
            if expected != said {
                wrong.push(format!(
                    "{}: {who} says {said}, and not {expected}",
                    edit.name
                ));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// Compiles and links a source by gcc with additional arguments.
fn gcc(folder: &Path, name: &str, source: &str, words: &str) {
    fs::write(folder.join("source.c"), source).unwrap();
    let words = format!("-w -g -O1 {words} -o {name} source.c");
    let output = run(folder, packages::path("/usr/bin/gcc").unwrap(), &words);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {errors}");
}

/// Static symbols are not part of an interface. For object files and static programs the global
/// symbols count; if one side is types alone, the other's exports.
#[test]
fn static_symbols_are_not_exported() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let statics = "static long kept; __attribute__((noinline)) static long own(long a) { return kept += a; }\n\
                   long use_own(void) { return own(1); }\n";
    let old = format!("{SOURCE}{statics}");
    let new = format!("{SOURCE}long use_own(void) {{ return 1; }}\n");
    let gone = new.replace("float scale(", "static float scale(");
    let versions = [("old", &old), ("new", &new), ("gone", &gone)];
    for (form, words) in [
        ("o", "-c"),
        ("so", "-fPIC -shared"),
        ("static", "-static -nostdlib -Wl,-e,use_own"),
    ] {
        for (name, source) in versions {
            gcc(folder, &format!("{name}.{form}"), source, words);
        }
        let [none, breaks] = ["new", "gone"].map(|name| format!("old.{form} {name}.{form}"));
        assert_eq!(ours(folder, &none), "none", "{form}");
        assert_eq!(abidiff(folder, &none), "none", "{form}");
        assert_eq!(ours(folder, &breaks), "breaks", "{form}");
    }
    let unspool = env!("CARGO_BIN_EXE_unspool");
    for (name, source) in versions {
        let words = format!("ctf from-dwarf {name}.so -o {name}.ctf");
        assert!(run(folder, unspool, &words).status.success(), "{name}");
        gcc(folder, "member.o", source, "-gctf -c");
        let words = format!("rc {name}.a member.o");
        let ar = run(folder, packages::path("/usr/bin/ar").unwrap(), &words);
        assert!(ar.status.success(), "{name}");
    }
    for (files, verdict) in [
        ("old.ctf new.so", "none"),
        ("old.so new.ctf", "none"),
        ("new.ctf old.so", "none"),
        ("new.so old.ctf", "none"),
        ("old.a new.a", "none"),
        ("old.a gone.a", "breaks"),
    ] {
        assert_eq!(ours(folder, files), verdict, "{files}");
    }
}

/// A change is reported with the path that leads to it, and DWARF can be compared with BTF.
#[test]
fn a_change_is_reported_with_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    build(folder, "old", SOURCE);
    build(
        folder,
        "new",
        &SOURCE.replace("    int key;", "    long key;"),
    );
    let unspool = env!("CARGO_BIN_EXE_unspool");
    let output = run(folder, unspool, "ctf diff old.dwarf.so new.dwarf.so");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains(
            "breaking: struct hidden has 8 bytes, had 4\n    by node_color(1)->secret->\n"
        ),
        "{text}"
    );
    let made = run(folder, unspool, "ctf to-btf old.dwarf.so -o old.btf");
    assert!(made.status.success());
    let output = run(folder, unspool, "ctf diff old.btf old.dwarf.so");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert_eq!(
        text.lines().last(),
        Some("changes that break: 0, compatible: 0"),
        "{text}"
    );
}
