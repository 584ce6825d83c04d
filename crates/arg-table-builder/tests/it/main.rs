//! Argument tables: a written table is read back, and other bytes cost an answer and nothing worse.
#![cfg(test)]

mod everything;

use std::path::{Path, PathBuf};

use everything::use_all;
use proptest::prelude::*;
use unspool_arg_table::ArgTable;
use unspool_arg_table_builder::{
    FileAnalysis, OwnedDisplayKind, analyze_file, encode, prototypes_of_ctf,
};
use unspool_check::{CheckSubject, CodeOrigin, DeclaredTable};
use unspool_elf::ElfFile;
use unspool_testing::{Finish, tool};

/// The functions of a program compiled by gcc, and their table.
fn made(program: &str) -> (FileAnalysis, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/tests/programs");
    let source = programs.join(format!("{program}.c"));
    let gcc = |words: &[&str], input: &Path| -> PathBuf {
        let out = folder.path().join(words[0]);
        let mut command = tool("gcc");
        command.arg("-o").arg(&out).args(&words[1..]).arg(input);
        command.succeed();
        out
    };
    let object = gcc(&["program.o", "-O2", "-gctf", "-c"], &source);
    let program = ElfFile::open(gcc(&["program"], &object)).unwrap();
    let object = ElfFile::open(&object).unwrap();
    let declarations = DeclaredTable::read(&program).unwrap();
    let subject = CheckSubject::new(&program, &declarations, CodeOrigin::Compiler).unwrap();
    let found = analyze_file(&subject, program.symbols(), &prototypes_of_ctf([&object]));
    let bytes = encode(&found, &program.table_key().unwrap()).unwrap();
    assert!(
        ArgTable::open(&bytes)
            .unwrap()
            .is_of_build(program.build_id().unwrap().as_bytes())
    );
    (found, bytes)
}

#[test]
fn a_built_table_reads_back() {
    compare("arguments");
    compare("arguments_float");
}

/// If there are more constants than a table keeps, the negative ones are kept: they show that
/// values are signed.
#[test]
fn of_many_constants_the_negative_ones_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let constants: Vec<_> = (0..300).map(|nth| format!("C{nth}, ")).collect();
    let constants = constants.concat();
    let text = format!(
        "enum many {{ {constants} LAST = -1 }}; int takes(enum many many) {{ return many; }}"
    );
    std::fs::write(path("many.c"), text).unwrap();
    let mut gcc = tool("gcc");
    gcc.args(["-gctf", "-c", "-o"]).arg(path("many.o"));
    gcc.arg(path("many.c")).succeed();
    let object = ElfFile::open(path("many.o")).unwrap();
    let prototypes = prototypes_of_ctf([&object]);
    let takes = prototypes.get(0, "takes").unwrap();
    let many = format!("{:?}", takes.parameters[0].display_kind);
    assert!(
        many.contains("(-1, \"LAST\")") && many.contains("(0, \"C0\")"),
        "{many}"
    );
    assert!(!many.contains("\"C299\""), "{many}");
}

/// gcc 12 reverses their dimensions in CTF, and names itself in `.comment`.
#[test]
fn arrays_of_arrays_are_as_the_source_has_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let text = "struct board { char cells[2][3]; short more[4][5][6]; }; int plays(struct board board) { return board.cells[1][2]; }";
    std::fs::write(path("board.c"), text).unwrap();
    let mut gcc = tool("gcc");
    gcc.args(["-gctf", "-c", "-o"]).arg(path("board.o"));
    gcc.arg(path("board.c")).succeed();
    let object = ElfFile::open(path("board.o")).unwrap();
    let prototypes = prototypes_of_ctf([&object]);
    let plays = prototypes.get(0, "plays").unwrap();
    let board = format!("{:?}", plays.parameters[0].display_kind);
    for array in [
        "Array(2, 3, Array(3, 1, ",
        "Array(4, 60, Array(5, 12, Array(6, 2, ",
    ] {
        assert!(board.contains(array), "{array}: {board}");
    }
}

fn compare(program: &str) {
    let (found, bytes) = made(program);
    let table = ArgTable::open(&bytes).unwrap();
    for range in &found.unproven {
        let last = range.end - 1;
        assert_eq!(
            (
                table.unproven_rules(range.start),
                table.unproven_rules(last)
            ),
            (range.rules, range.rules)
        );
    }
    let is_doubted = |pc: u64| {
        let mut unproven = found.unproven.iter();
        unproven.any(|range| (range.start..range.end).contains(&pc))
    };
    let (mut rows, mut calls, mut parameters) = (0, 0, 0);
    for function in &found.functions {
        let Some(read) = table.function(function.start) else {
            assert!(function.prototype.is_none() && function.calls.is_empty());
            continue;
        };
        assert_eq!(
            (read.start, read.end, read.entry),
            (function.start, function.end, function.entry)
        );
        assert_eq!(
            (read.is_certain, read.is_reentered, read.is_jumped_to),
            (
                function.is_certain && function.is_given_all,
                function.is_reentered,
                function.is_jumped_to
            )
        );
        if let Some(prototype) = &function.prototype {
            let found: Vec<_> = read.parameters().unwrap().collect();
            assert_eq!(found.len(), prototype.parameters.len());
            for (found, written) in found.iter().zip(&prototype.parameters) {
                assert_eq!(found.type_name, written.type_name);
                assert_eq!(found.bytes, written.bytes);
                let kind = OwnedDisplayKind::from(found.display_kind);
                assert_eq!(kind, written.display_kind);
                parameters += 1;
            }
        }
        for pc in function.start..function.end {
            assert_eq!(
                table.unproven_rules(pc).is_none(),
                !is_doubted(pc),
                "{pc:#x}"
            );
            let row = function.rows.iter().rev().find(|row| row.start <= pc);
            let pieces = read.row(pc);
            assert_eq!(pieces.is_some(), row.is_some());
            if let (Some(row), Some(pieces)) = (row, pieces) {
                assert_eq!(
                    pieces.take(row.pieces.len()).collect::<Vec<_>>(),
                    row.pieces
                );
                rows += 1;
            }
            let call = function.calls.iter().find(|call| call.returns_to == pc);
            let found = read.call(pc);
            assert_eq!(found.is_some(), call.is_some(), "{pc:#x}");
            if let (Some(call), Some(found)) = (call, found) {
                assert_eq!(found.passed().collect::<Vec<_>>(), call.arguments);
                let is_known = |target: &u64| {
                    table
                        .function(*target)
                        .is_some_and(|own| own.start == *target)
                };
                assert_eq!(found.target, call.target.filter(is_known));
                calls += 1;
            }
        }
    }
    assert!(
        rows > 500 && calls > 10 && parameters > 25,
        "{program}: {rows} {calls} {parameters}"
    );
}

#[test]
fn bad_tables_cost_an_answer_only() {
    let (found, bytes) = made("arguments");
    let addresses: Vec<u64> = found
        .functions
        .iter()
        .map(|function| function.start + 9)
        .collect();
    for end in 0..bytes.len() {
        use_all(&bytes[..end], addresses[end % addresses.len()]);
    }
    let strategy = proptest::collection::vec((0..bytes.len(), any::<u8>()), 1..40);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(2000));
    let result = runner.run(&(strategy, 0..addresses.len()), |(changes, at)| {
        let mut changed = bytes.clone();
        for (at, byte) in changes {
            changed[at] = byte;
        }
        use_all(&changed, addresses[at]);
        Ok(())
    });
    result.unwrap();
}
