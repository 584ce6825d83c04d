//! Argument tables: a written table is read back, and other bytes cost an answer and nothing worse.
#![cfg(test)]

mod everything;

#[path = "../../../c-types/tests/it/common/graphs.rs"]
mod graphs;

use std::path::{Path, PathBuf};

use everything::{describe, use_all};
use proptest::prelude::*;
use unspool_arg_table::{ArgTable, DisplayType as _, ValueDisplay};
use unspool_arg_table_builder::{
    FileAnalysis, FunctionAnalysis, Prototypes, analyze_file, encode, prototypes_of_ctf,
};
use unspool_c_types::{
    Convention, Graph, Member, Parameter, Tag, Type, TypeId, TypeKind, TypedSymbol,
};
use unspool_check::{CheckSubject, CodeOrigin, DeclaredTable};
use unspool_dwarf_types::GraphType;
use unspool_elf::{ElfFile, TableKey};
use unspool_testing::{Finish, tool};

/// The functions of a program compiled by gcc, and their table.
fn made(program: &str) -> (FileAnalysis, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../display-values/tests/programs");
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
    let prototypes = prototypes_of_ctf([&object]);
    let found = analyze_file(&subject, program.symbols(), &prototypes);
    let bytes = encode(&found, prototypes.types(), &program.table_key().unwrap()).unwrap();
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
    let many = &described(&table_with(&prototypes, "takes"))[0];
    assert!(many.starts_with("enum {LAST = -1, C0 = 0, "), "{many}");
    assert!(!many.contains("C299 ="), "{many}");
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
    let board = &described(&table_with(&prototypes, "plays"))[0];
    for array in [
        "2 of 3 bytes: 3 of 1 bytes: char",
        "4 of 60 bytes: 5 of 12 bytes: 6 of 2 bytes: signed",
    ] {
        assert!(board.contains(array), "{array}: {board}");
    }
}

/// The table of one function, with the prototype of that name.
fn table_with(prototypes: &Prototypes, name: &str) -> Vec<u8> {
    let function = FunctionAnalysis {
        start: 0,
        end: 1,
        entry: 0,
        prototype: Some(prototypes.get(0, name).unwrap().clone()),
        is_certain: true,
        is_given_all: true,
        is_reentered: false,
        is_jumped_to: false,
        rows: Vec::new(),
        calls: Vec::new(),
    };
    let file = FileAnalysis {
        functions: vec![function],
        unproven: Vec::new(),
    };
    let key = TableKey {
        build_id: None,
        content: [0; 20],
    };
    encode(&file, prototypes.types(), &key).unwrap()
}

/// The display kinds of the parameters of a table's first function.
fn described(table: &[u8]) -> Vec<String> {
    let function = ArgTable::open(table).unwrap().get(0).unwrap();
    let kinds = function.parameters().unwrap().map(|one| one.display_kind);
    kinds.map(|kind| describe(kind, &mut 1000)).collect()
}

/// The table of a function with one parameter of each type.
fn table_of_types(graph: &mut Graph<'_>, types: &[TypeId]) -> Vec<u8> {
    let parameters = types.iter().map(|ty| Parameter {
        name: "".into(),
        ty: *ty,
    });
    let function = graph.add(Type::unnamed(TypeKind::Function {
        returns: TypeId(0),
        parameters: parameters.collect(),
        is_variadic: false,
    }));
    graph.functions = vec![TypedSymbol::new("function", function)];
    let mut prototypes = Prototypes::default();
    prototypes.add(graph, Convention::Amd64);
    table_with(&prototypes, "function")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// The types share parts, as random graphs have them.
    #[test]
    fn values_are_displayed_by_graphs_as_by_tables(
        mut graph in graphs::graph(),
        value in proptest::collection::vec(
            (any::<u8>(), prop_oneof![9 => Just(0xff), 1 => any::<u8>()]),
            0..100,
        ),
    ) {
        let (bytes, known): (Vec<u8>, Vec<u8>) = value.into_iter().unzip();
        let types: Vec<TypeId> = graph.types().map(|(id, _)| id).collect();
        let table = table_of_types(&mut graph, &types);
        let function = ArgTable::open(&table).unwrap().get(0).unwrap();
        let parameters: Vec<_> = function.parameters().unwrap().collect();
        prop_assert_eq!(parameters.len(), types.len());
        for (parameter, ty) in parameters.iter().zip(types) {
            let kinds = (parameter.display_kind, GraphType::new(&graph, ty).kind());
            prop_assert_eq!(describe(kinds.0, &mut 1000), describe(kinds.1.clone(), &mut 1000));
            let by_table = ValueDisplay::from_kind(kinds.0, &bytes);
            let by_graph = ValueDisplay::from_kind(kinds.1, &bytes);
            prop_assert_eq!(by_table.to_string(), by_graph.to_string());
            let texts = (by_table.with_known(&known), by_graph.with_known(&known));
            prop_assert_eq!(texts.0.to_string(), texts.1.to_string());
        }
    }
}

/// Seven structures, each with 256 members of the next one's type, have 2^56 values. A table has
/// each structure once.
#[test]
fn shared_types_are_encoded_once() {
    let mut graph = Graph::new(8);
    let mut ty = graph.add(Type::named(
        "int",
        TypeKind::Integer(unspool_c_types::Number::with_size(
            4,
            unspool_c_types::Number::SIGNED,
        )),
    ));
    for level in 0..7 {
        let member = |nth: u32| Member {
            name: format!("m{nth}").into(),
            ty,
            offset: 0,
            bits: None,
        };
        let union = TypeKind::Record {
            tag: Tag::Union,
            size: 4,
            members: (0..256).map(member).collect(),
        };
        ty = graph.add(Type::named(format!("level{level}"), union));
    }
    let table = table_of_types(&mut graph, &[ty]);
    assert!(table.len() < 7 * 256 * 16, "{}", table.len());
    let function = ArgTable::open(&table).unwrap().get(0).unwrap();
    let parameter = function.parameters().unwrap().next().unwrap();
    let text = ValueDisplay::new(&parameter, &[1, 0, 0, 0]).to_string();
    let start = ".m0 = {.m0 = {.m0 = {.m0 = {.m0 = {.m0 = {.m0 = 1, .m1 = 1, ";
    assert!(text.starts_with(&format!("{{{start}")), "{text}");
    assert!(text.len() < 1 << 17, "{}", text.len());
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
                assert_eq!(found.bytes, written.bytes);
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
