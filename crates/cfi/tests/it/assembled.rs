//! Sections assembled from `tests/asm/*.s`. Comments there state the expected results:
//!
//! ```text
//! # as: aarch64-linux-gnu-as    the assembler and its options (without the line: `as`)
//! # readelf differs: WHY        the cross-check with readelf finds differences, and why
//! #! entry at …                 a problem that is reported
//! #| fn 0x0..0x4                a line of the table, in the text form of `unspool-rows`
//! ```
//!
//! `UNSPOOL_BLESS=1 cargo test -p unspool-cfi --test it assembled` rewrites the expected lines:
//! read the difference before you commit it.

use std::fs;
use std::path::{Path, PathBuf};

use unspool_rows::text;
use unspool_testing::{command, packages};
use xtask::{elf, readelf_compare};

/// The expected lines of a source.
struct ExpectedLines {
    assembler: Vec<String>,
    differs: bool,
    lines: String,
}

fn expected(source: &str) -> ExpectedLines {
    let after = |prefix: &str| source.lines().find_map(|line| line.strip_prefix(prefix));
    let assembler = after("# as: ").unwrap_or("as");
    let is_expectation = |line: &&str| line.starts_with("#!") || line.starts_with("#|");
    ExpectedLines {
        assembler: assembler.split_whitespace().map(str::to_owned).collect(),
        differs: after("# readelf differs: ").is_some(),
        lines: source
            .lines()
            .filter(is_expectation)
            .map(|line| format!("{line}\n"))
            .collect(),
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/asm")
}

/// Assembles the source `name` to the object `object`, so that tests do not share files.
pub(crate) fn object(name: &str, object: &str) -> PathBuf {
    let source = folder().join(format!("{name}.s"));
    let expected = expected(&fs::read_to_string(&source).unwrap());
    assemble(&source, &expected, object)
}

fn assemble(source: &Path, expected: &ExpectedLines, object: &str) -> PathBuf {
    let name = source.display();
    let object = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{object}.o"));
    let [program, options @ ..] = expected.assembler.as_slice() else {
        panic!("{name}: no assembler");
    };
    let program = packages::path(&format!("/usr/bin/{program}"));
    let output = command(program.unwrap_or_else(|error| panic!("{error}")))
        .args(options)
        .arg("-o")
        .arg(&object)
        .arg(source)
        .output()
        .unwrap();
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {messages}");
    object
}

/// Our result, in the form of the expected lines.
fn read(cfi_file: &elf::CfiFile<'_>) -> String {
    let mut lines = String::new();
    for frame in &cfi_file.sections {
        let reading = unspool_cfi::read_table(&cfi_file.section(frame));
        for problem in &reading.problems {
            lines.push_str(&format!("#! {problem}\n"));
        }
        let printed = reading.table.to_string();
        let again = text::parse(&printed).unwrap();
        assert_eq!(again.to_string(), printed, "the text form parses back");
        for line in printed.lines() {
            lines.push_str(&format!("#| {line}\n"));
        }
    }
    lines
}

fn check(source: &Path) {
    let name = source.display();
    let content = fs::read_to_string(source).unwrap();
    let expected = expected(&content);
    let object = source.file_stem().unwrap().to_str().unwrap();
    let object = assemble(source, &expected, object);
    let data = fs::read(&object).unwrap();
    let units = elf::units(&data).unwrap();
    let lines = read(&units[0]);
    if std::env::var_os("UNSPOOL_BLESS").is_some() {
        bless(source, &content, &lines);
    } else {
        assert_eq!(lines, expected.lines, "{name}");
    }
    let report = readelf_compare::compare(&object, &units).unwrap();
    assert!(
        report.fdes + report.problems.len() as u64 > 0,
        "{name}: nothing is compared"
    );
    let first = report.differences.first();
    let first = first.map(ToString::to_string).unwrap_or_default();
    assert_eq!(
        report.difference_count > 0,
        expected.differs,
        "{name}: readelf: {first}"
    );
}

/// Replaces the expected lines at the end of the leading comment.
fn bless(source: &Path, content: &str, lines: &str) {
    let is_other = |line: &&str| !line.starts_with("#!") && !line.starts_with("#|");
    let others: Vec<&str> = content.lines().filter(is_other).collect();
    let head = others
        .iter()
        .take_while(|line| line.starts_with('#'))
        .count();
    let (head, rest) = others.split_at(head);
    let new = format!("{}\n{lines}{}\n", head.join("\n"), rest.join("\n"));
    fs::write(source, new).unwrap();
}

#[test]
fn assembled_sections_read_as_their_sources_say() {
    let mut sources: Vec<PathBuf> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    sources.sort();
    assert!(sources.len() >= 15, "{} sources", sources.len());
    for source in sources {
        check(&source);
    }
}
