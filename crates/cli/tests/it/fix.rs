//! `unspool check --fix` and `--diff`, as a user calls them.

use std::fs;

use unspool_testing::Finish as _;

use crate::harness::{self, TestFolder};

/// A function with a `push` that no directive describes, and one that no directive can describe.
const TEXT: &str = "\
\t.globl\tf
f:
\t.cfi_startproc
\tpush\t%rdi
\tcall\tg
\tpop\t%rdi
\tret
\t.cfi_endproc
\t.globl\th
h:
\t.cfi_startproc
\tpush %rax; push %rax
\tadd $16, %rsp
\tret
\t.cfi_endproc
";

/// The status, results and messages of `unspool check`.
fn check(folder: &TestFolder, arguments: &[&str]) -> (i32, String, String) {
    let output = harness::unspool_in(folder.path(), &["check"])
        .args(arguments)
        .finish();
    (output.status.code().unwrap(), output.out, output.err)
}

#[test]
fn fixes_are_shown_and_written() {
    let folder = TestFolder::new();
    let path = folder.write("f.s", TEXT);
    let (status, diff, said) = check(&folder, &["--diff", "f.s"]);
    assert_eq!(status, 1, "{said}");
    assert_eq!(fs::read_to_string(&path).unwrap(), TEXT);
    assert!(diff.starts_with("--- a/f.s\n+++ b/f.s\n"), "{diff}");
    assert!(diff.contains("\n+\t.cfi_adjust_cfa_offset 8\n"), "{diff}");
    let stays = "f.s:14: CFI001 stays: the line makes several instructions";
    assert!(said.contains(stays), "{said}");
    let count = "f.s: 2 findings would be fixed, 1 would stay";
    assert!(said.contains(count), "{said}");
    // A finding remains.
    let (status, out, said) = check(&folder, &["--fix", "f.s"]);
    assert_eq!(status, 1, "{out}{said}");
    assert!(said.contains("f.s: 2 findings fixed, 1 stay"), "{said}");
    let fixed = fs::read_to_string(&path).unwrap();
    let push = "\tpush\t%rdi\n";
    assert!(fixed.contains(&format!("{push}\t.cfi_adjust_cfa_offset 8\n")));
    // None does, and there is nothing to do.
    fs::write(&path, fixed.split("\t.globl\th").next().unwrap()).unwrap();
    for option in ["--fix", "--diff"] {
        let (status, _, said) = check(&folder, &[option, "f.s"]);
        assert_eq!((status, said.as_str()), (0, ""), "{option}");
    }
}

#[test]
fn only_assembly_source_and_elf_files_are_mended() {
    let folder = TestFolder::new();
    folder.write("f.c", "int x;\n");
    for (option, why) in [
        ("--fix", "f.c: not an ELF file: it starts with int x;"),
        (
            "--diff",
            "f.c: --diff shows edits of assembly source (.s, .S) only",
        ),
    ] {
        let (status, _, said) = check(&folder, &[option, "f.c"]);
        assert_eq!(status, 2, "{said}");
        assert!(said.contains(why), "{said}");
    }
}
