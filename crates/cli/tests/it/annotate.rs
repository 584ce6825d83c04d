//! `unspool annotate`, as a user calls it.

use std::fs;

use unspool_testing::Finish as _;

use crate::harness::{self, TestFolder};

#[test]
fn what_is_annotated_is_written_and_counted() {
    let folder = TestFolder::new();
    let text = "\t.globl f\nf:\tpush %rbx\n\tpop %rbx\n\tret\n";
    let refused = "\t.globl g\ng:\tpush %rax; push %rax\n\tpop %rax\n\tpop %rax\n\tret\n";
    folder.write("f.s", text);
    folder.write("g.s", format!("{text}{refused}"));
    let annotate = |words: &[&str], status| {
        let mut annotate = harness::unspool_in(folder.path(), &["annotate"]);
        annotate.args(words).finish().ended_with(status)
    };
    let printed = annotate(&["f.s"], 0);
    let counted = "unspool: f.s: 1 functions annotated, 0 have directives, 0 refused\n";
    assert_eq!(printed.err, counted);
    annotate(&["f.s", "-o", "written.s"], 0);
    let written = fs::read_to_string(folder.join("written.s")).unwrap();
    assert_eq!(written, printed.out);
    assert!(written.contains("\t.cfi_startproc\n"), "{written}");
    // What can be annotated is, and the rest is an error.
    let other = annotate(&["g.s"], 1);
    assert_eq!(other.out, format!("{written}{refused}"));
    let said = "unspool: error: g.s:6: g: the line makes several";
    assert!(other.err.starts_with(said), "{}", other.err);
    let said = annotate(&["written.s"], 0).err;
    assert!(
        said.contains("0 functions annotated, 1 have directives"),
        "{said}"
    );
    let diff = annotate(&["--diff", "f.s"], 0).out;
    assert!(
        diff.starts_with("--- a/f.s\n+++ b/f.s\n@@ -1,4 +1,"),
        "{diff}"
    );
    assert!(diff.contains("\n+\t.cfi_startproc\n"), "{diff}");
    assert_eq!(annotate(&["--diff", "written.s"], 0).out, "");
    let said = annotate(&["f.c"], 2).err;
    assert!(said.contains("f.c: not an assembly source file"), "{said}");
}
