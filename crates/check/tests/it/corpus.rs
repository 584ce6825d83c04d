//! The corpus of right and wrong tables; `cargo xtask corpus` proves by single-stepping which they
//! are.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::Path;

use unspool_check::{CheckReport, CheckSubject, CodeOrigin, DeclaredTable, Finding, Severity};
use unspool_elf::{ElfFile, Symbols};
use unspool_testing::tool;
use xtask::corpus::pair::{self, Pair, PairVerdict};

/// Right variants that are not entirely proven, though it is possible: vector registers are not
/// tracked.
const NOT_PROVEN: &[&str] = &["saved_in_vector_register"];

/// Wrong variants that are only reported as unproven, though the code refutes them.
const NOT_REFUTED: &[&str] = &[
    "call_by_either_register",
    "call_by_variable_pointer",
    "call_on_other_stack",
    "cfa_in_scratch_register",
    "index_over_saved_register",
    "label_inside_loses_register",
    "old_stack_pointer_in_frame_slow_path",
    "realigned_epilogue",
    "realigned_epilogue_rbx",
    "restore_misses_one_way",
    "store_by_segment",
    "val_offset_of_stack_pointer",
    "xsave_over_saved_register",
];

fn assembled(pair: &Pair, options: &[&str], folder: &Path) -> ElfFile {
    assembled_file(&pair.path, &[options, &["-g"]].concat(), folder)
}

fn assembled_file(source: &Path, options: &[&str], folder: &Path) -> ElfFile {
    let name = source.file_stem().unwrap().to_string_lossy();
    let object = folder.join(format!("{name}.{}.o", options.len()));
    let assembler = tool("as")
        .args(options)
        .arg("-o")
        .args([&object, source])
        .output()
        .expect("install binutils");
    assert!(assembler.status.success(), "{name}: {assembler:?}");
    ElfFile::from_bytes(&object, std::fs::read(&object).unwrap()).unwrap()
}

fn findings(file: &ElfFile) -> Vec<Finding> {
    let declarations = DeclaredTable::read(file).unwrap();
    let mut subject = CheckSubject::new(file, &declarations, CodeOrigin::from_file(file)).unwrap();
    assert_eq!(CodeOrigin::from_file(file), CodeOrigin::HandWritten);
    CheckReport::from_subject(&mut subject, NonZeroUsize::MIN, |_, _| {}).findings
}

fn worst(findings: &[Finding]) -> Severity {
    let severities = findings.iter().map(|finding| finding.severity);
    severities.max().unwrap_or(Severity::Note)
}

#[test]
fn right_tables_are_never_refuted() {
    let folder = tempfile::tempdir().unwrap();
    let mut unproven = BTreeSet::new();
    let mut excused: BTreeSet<String> = NOT_PROVEN.iter().map(|name| (*name).to_owned()).collect();
    for pair in pair::all().unwrap() {
        let found = findings(&assembled(&pair, &[], folder.path()));
        assert_ne!(
            worst(&found),
            Severity::Refuted,
            "{}: {found:#?}",
            pair.name
        );
        if worst(&found) == Severity::Unproven {
            unproven.insert(pair.name.clone());
        }
        if pair.is_right_unproven {
            excused.insert(pair.name);
        }
    }
    let surprising: Vec<_> = unproven.difference(&excused).collect();
    assert!(surprising.is_empty(), "not proven: {surprising:?}");
    for name in NOT_PROVEN {
        assert!(unproven.contains(*name), "{name} is proven now");
    }
}

#[test]
fn wrong_tables_are_found_at_the_instruction() {
    let folder = tempfile::tempdir().unwrap();
    let mut wrong = Vec::new();
    for pair in pair::all().unwrap() {
        let file = assembled(&pair, &["--defsym", "WRONG=1"], folder.path());
        let found = findings(&file);
        let is_excused = NOT_REFUTED.contains(&pair.name.as_str());
        let expected = match pair.verdict {
            PairVerdict::Refuted if !is_excused => Severity::Refuted,
            PairVerdict::Refuted => Severity::Unproven,
            PairVerdict::Unproven => Severity::Note,
        };
        if worst(&found) < expected || is_excused && worst(&found) > expected {
            wrong.push(format!("{}: {:?}", pair.name, worst(&found)));
        }
        if expected == Severity::Note {
            continue;
        }
        let symbols = Symbols::new(&file, None);
        let [first, ..] = pair.labels.as_slice() else {
            panic!("{}: no label", pair.name);
        };
        let label = symbols.named(first).next().unwrap().address;
        // One instruction off is close enough.
        let is_there = |finding: &&Finding| {
            finding.severity > Severity::Note && finding.address.0.abs_diff(label.0) <= 8
        };
        if found.iter().find(is_there).is_none() {
            wrong.push(format!("{}: not at {first}: {found:#?}", pair.name));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Nothing shows any more who wrote them, or where functions are; or a name says that it is C.
#[test]
fn wrong_tables_are_found_without_symbols_and_lines() {
    let folder = tempfile::tempdir().unwrap();
    let mut clean = Vec::new();
    for pair in pair::all().unwrap() {
        let text = std::fs::read_to_string(&pair.path).unwrap();
        let source = folder.path().join(format!("{}.s", pair.name));
        std::fs::write(&source, format!("\t.file \"x.c\"\n{text}")).unwrap();
        let file = assembled_file(&source, &["--defsym", "WRONG=1"], folder.path());
        let is_found = worst(&findings(&file)) > Severity::Note;
        if pair.verdict == PairVerdict::Refuted && !is_found {
            clean.push(format!("{} of x.c", pair.name));
        }
        let file = assembled(&pair, &["--defsym", "WRONG=1"], folder.path());
        let path = file.path().to_owned();
        let strip = tool("strip").arg("--strip-unneeded").arg(&path).output();
        assert!(strip.expect("install binutils").status.success());
        let is_found = worst(&findings(&ElfFile::open(&path).unwrap())) > Severity::Note;
        if pair.verdict == PairVerdict::Refuted && !is_found {
            clean.push(pair.name);
        }
    }
    assert!(clean.is_empty(), "{clean:?}");
}
