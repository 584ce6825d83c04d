//! Files of the distribution: nearly all rows are proven, and known faults are found.

use std::num::NonZeroUsize;

use unspool_check::{
    CheckReport, CheckSubject, CodeOrigin, DeclaredTable, Finding, FindingCode, RowTotals, Severity,
};
use unspool_elf::ElfFile;

fn checked(path: &str) -> (RowTotals, Vec<Finding>) {
    let file = ElfFile::open(path).unwrap();
    let declarations = DeclaredTable::read(&file).unwrap();
    let mut subject =
        CheckSubject::new(&file, &declarations, CodeOrigin::from_file(&file)).unwrap();
    assert_eq!(CodeOrigin::from_file(&file), CodeOrigin::Compiler);
    let threads = NonZeroUsize::new(2).unwrap();
    let report = CheckReport::from_subject(&mut subject, threads, |_, _| {});
    assert_eq!(
        report.totals.rows,
        declarations_rows(&declarations),
        "{path}"
    );
    (report.totals, report.findings)
}

fn declarations_rows(declarations: &DeclaredTable) -> u64 {
    let table = &declarations.table;
    let fdes = table.fdes().iter();
    let mut starts: Vec<_> = fdes
        .filter(|fde| fde.start < fde.end)
        .map(|fde| (fde.start, table.rows(fde).len() as u64))
        .collect();
    starts.sort_unstable();
    starts.dedup_by_key(|(start, _)| *start);
    starts.iter().map(|(_, rows)| rows).sum()
}

#[test]
fn nearly_all_rows_of_what_compilers_made_are_proven() {
    let files = [
        "/lib/x86_64-linux-gnu/libc.so.6",
        "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
        "/usr/bin/gdb",
    ];
    for path in files {
        let (totals, _) = checked(path);
        let missing = |proven: u64| totals.rows - proven;
        assert!(
            missing(totals.proven_cfa) * 1000 <= totals.rows,
            "{path}: {totals:?}"
        );
        assert!(
            missing(totals.proven) * 500 <= totals.rows,
            "{path}: {totals:?}"
        );
        // libc's refuted rows are in assembly: two kernels of GMP, and functions that switch
        // stacks.
        assert!(totals.refuted <= 15, "{path}: {totals:?}");
    }
}

/// glibc 2.36 has two functions with only one row, though they push `rbx` and `rbp`:
/// `__mpn_addmul_1` and `__mpn_submul_1`, of GMP, which has no CFI.
#[test]
fn the_kernels_of_gmp_in_libc_are_found() {
    let (_, findings) = checked("/lib/x86_64-linux-gnu/libc.so.6");
    let is_it = |finding: &&Finding| {
        finding.code == FindingCode::CfaOffset
            && finding.severity == Severity::Refuted
            && finding.fix.as_deref() == Some(".cfi_def_cfa_offset 24")
    };
    assert_eq!(findings.iter().filter(is_it).count(), 2, "{findings:#?}");
}
