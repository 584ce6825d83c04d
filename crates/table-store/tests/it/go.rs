//! Rows of stripped Go programs, compared with the debugging information of the same code.

use std::collections::BTreeSet;

use unspool_elf::ElfFile;
use unspool_rows::{CfaRule, Register, RegisterRule, Table};
use unspool_table_store::{TableSource, read, synthesize};
use unspool_testing::{Folder, STRIPPED, build_go};

#[test]
fn rows_of_a_stripped_program() {
    let folder = Folder::new();
    let source = "package main\nfunc main() { println(len(\"x\")) }\n";
    let whole = build_go(&folder, source, "whole", &[]);
    let stripped = build_go(&folder, source, "stripped", &[STRIPPED]);
    let whole = ElfFile::open(whole).unwrap();
    let theirs = read(&whole, TableSource::DebugFrame).unwrap().table;
    let stripped = ElfFile::open(stripped).unwrap();
    let own = Table::new(stripped.abi());
    let ours = synthesize(&stripped, stripped.symbols(), &own)
        .unwrap()
        .table;
    let spans: Vec<_> = ours.spans().collect();
    let (mut bytes, mut equal, mut roots) = (0, 0, BTreeSet::new());
    for span in theirs.spans() {
        bytes += span.end.0 - span.start.0;
        let after = spans.partition_point(|ours| ours.end <= span.start);
        for found in spans[after..]
            .iter()
            .take_while(|ours| ours.start < span.end)
        {
            let (row, expected) = (ours.row(found.row).unwrap(), theirs.row(span.row).unwrap());
            let shared = found.start.max(span.start)..found.end.min(span.end);
            // They have no row of the stack switches, but that of the code around them.
            let is_own = |cfa| {
                matches!(
                    cfa,
                    CfaRule::RegisterOffset {
                        register: Register(7),
                        ..
                    }
                )
            };
            let is_switch = !is_own(row.cfa);
            let is_root = row.rule(Register(16)) == Some(RegisterRule::Undefined);
            assert!(
                is_switch || is_root || row.cfa == expected.cfa,
                "{shared:?} {row:?} {expected:?}"
            );
            equal += shared.end.0 - shared.start.0;
            roots.extend(is_root.then_some(found.start));
        }
    }
    assert!(equal * 1000 > bytes * 995, "{equal} of {bytes} bytes");
    assert!((3..20).contains(&roots.len()), "{roots:x?}");
}
