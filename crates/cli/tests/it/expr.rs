//! `unspool expr`: its output is assembled by gas and read back by readelf.

use std::fs;

use unspool_testing::{Finish as _, TextOutput, tool};

use crate::harness;
use crate::json;

fn expr(arguments: &[&str]) -> TextOutput {
    harness::unspool().arg("expr").args(arguments).finish()
}

fn printed(arguments: &[&str]) -> String {
    let output = expr(arguments);
    assert!(output.status.success(), "{arguments:?}: {output}");
    output.out
}

fn run_tool(name: &str, arguments: &[&str]) -> String {
    tool(name).args(arguments).succeed()
}

/// A rule, and readelf's output for it.
const RULES: [(&str, &str); 9] = [
    (
        "cfa = *(rsp+8)+8",
        "DW_CFA_def_cfa_expression (DW_OP_breg7 (rsp): 8; DW_OP_deref; DW_OP_plus_uconst: 8)",
    ),
    (
        "cfa = rsp+8+(((rip & 15) >= 11) << 3)",
        "DW_CFA_def_cfa_expression (DW_OP_breg7 (rsp): 8; DW_OP_breg16 (rip): 0; DW_OP_lit15; \
         DW_OP_and; DW_OP_lit11; DW_OP_ge; DW_OP_lit3; DW_OP_shl; DW_OP_plus)",
    ),
    (
        "rbx = *(cfa-16)",
        "DW_CFA_expression: r3 (rbx) (DW_OP_lit16; DW_OP_minus)",
    ),
    (
        "r12 = *(cfa+48)",
        "DW_CFA_expression: r12 (r12) (DW_OP_plus_uconst: 48)",
    ),
    (
        "rsp = cfa-16",
        "DW_CFA_val_expression: r7 (rsp) (DW_OP_lit16; DW_OP_minus)",
    ),
    (
        "rip = *(rdi+0x1000)",
        "DW_CFA_expression: r16 (rip) (DW_OP_breg5 (rdi): 4096)",
    ),
    (
        "rbp = *u32 rax * 1000",
        "DW_CFA_val_expression: r6 (rbp) (DW_OP_breg0 (rax): 0; DW_OP_deref_size: 4; \
         DW_OP_const2u: 1000; DW_OP_mul)",
    ),
    (
        "r15 = *(cfa + (cfa & -16))",
        "DW_CFA_expression: r15 (r15) (DW_OP_dup; DW_OP_over; DW_OP_const1s: -16; DW_OP_and; DW_OP_plus)",
    ),
    (
        "rbx = {breg7 0; const4s -100000; minus}",
        "DW_CFA_val_expression: r3 (rbx) (DW_OP_breg7 (rsp): 0; DW_OP_const4s: -100000; DW_OP_minus)",
    ),
];

#[test]
fn readelf_reads_the_rule_that_was_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let mut source = String::from("f:\t.cfi_startproc\n");
    for (rule, _) in RULES {
        let text = printed(&[rule]);
        let escape = text.lines().find(|line| line.starts_with(".cfi_escape"));
        source += &format!("\t{}\n\tnop\n", escape.unwrap());
    }
    source += "\t.cfi_endproc\n";
    let (path, object) = (folder.path().join("rules.s"), folder.path().join("rules.o"));
    let (path, object) = (path.to_str().unwrap(), object.to_str().unwrap());
    fs::write(path, source).unwrap();
    run_tool("as", &["-o", object, path]);
    let read = run_tool("readelf", &["--debug-dump=frames", object]);
    let read = read.lines().map(str::trim);
    let read: Vec<&str> = read.filter(|line| line.contains("expression")).collect();
    let expected: Vec<&str> = RULES.iter().map(|(_, read)| *read).collect();
    assert_eq!(read, expected);
}

#[test]
fn bytes_become_the_rule_that_they_were_made_of() {
    for (rule, _) in RULES {
        let there = printed(&[rule]);
        let escape = there.lines().find(|line| line.starts_with(".cfi_escape"));
        let escape = escape.unwrap();
        let bytes = escape.strip_prefix(".cfi_escape ").unwrap();
        let digits = bytes.replace("0x", "").replace(", ", "");
        // As a shell splits a line into words.
        let words: Vec<&str> = escape.split(' ').collect();
        for arguments in [&words[..], &[bytes], &[&digits]] {
            assert_eq!(printed(arguments), there, "{arguments:?}");
        }
    }
    let both = printed(&[".cfi_escape 0x2e, 0x10; .cfi_escape 0x0f, 2, 0x77, 8"]);
    assert!(
        both.starts_with("DW_CFA_GNU_args_size 16\ncfa = rsp+8\n"),
        "{both}"
    );
}

#[test]
fn the_shorter_directive_is_printed() {
    for (rule, directive) in [
        ("cfa = rbp+16", ".cfi_def_cfa %rbp, 16"),
        ("rbx = *(cfa-16)", ".cfi_offset %rbx, -16"),
        ("rsp = cfa", ".cfi_val_offset %rsp, 0"),
        ("rbx = rcx", ".cfi_register %rbx, %rcx"),
    ] {
        let text = printed(&[rule]);
        assert_eq!(text.lines().last(), Some(directive), "{text}");
    }
    let text = printed(&["--arch", "aarch64", "x19 = *(cfa-16)"]);
    assert_eq!(text.lines().last(), Some(".cfi_offset x19, -16"));
}

/// A regression: gas does not accept `.cfi_offset %ra, -8` or `%reg77`.
#[test]
fn the_shorter_directive_is_one_for_gas() {
    let mut source = String::from("f:\t.cfi_startproc\n");
    let mut rules = vec!["rip = *(cfa-8)".to_owned(), "rbx = rip".to_owned()];
    let names = (0..130).map(|number| format!("reg{number} = *(cfa-24)"));
    rules.extend(names.chain(["reg77 = cfa".to_owned(), "cfa = reg12+8".to_owned()]));
    for rule in &rules {
        let text = printed(&[rule]);
        let directive = text.lines().last().unwrap();
        assert!(!directive.contains("escape"), "{rule}: {text}");
        source += &format!("\t{directive}\n\tnop\n");
    }
    assert!(source.contains(".cfi_offset %rip, -8\n"), "{source}");
    assert!(source.contains(".cfi_register %rbx, %rip\n"), "{source}");
    assert!(source.contains(".cfi_val_offset 77, 0\n"), "{source}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rules.s");
    fs::write(&path, source + "\t.cfi_endproc\n").unwrap();
    run_tool("as", &["-o", "/dev/null", path.to_str().unwrap()]);
}

#[test]
fn the_character_at_fault_is_pointed_at() {
    for (text, column) in [
        ("cfa = *(rsp+8)+ )", 16),
        ("cfa = é", 6),
        (".cfi_escape 1, 300", 15),
    ] {
        let output = expr(&[text]);
        assert_eq!(output.status.code(), Some(2));
        assert_eq!(output.out, "");
        let error = output.err;
        let mut lines = error.lines();
        assert!(lines.next().unwrap().starts_with("unspool: error: "));
        assert_eq!(lines.next(), Some(&*format!("  {text}")));
        assert_eq!(lines.next(), Some(&*format!("  {:column$}^", "")));
    }
}

#[test]
fn the_json_says_the_same() {
    let output = printed(&["--format", "json", "rbx = *(cfa-16)"]);
    let document = json::document(output);
    assert_eq!(document["schema"], "unspool.expr");
    let statement = &document["statements"][0];
    assert_eq!(statement["formula"], "rbx = *(cfa-16)");
    assert_eq!(statement["operations"], "rbx = [{lit16; minus}]");
    assert_eq!(statement["expression"], serde_json::json!([0x40, 0x1c]));
    assert_eq!(
        statement["escape"],
        ".cfi_escape 0x10, 0x03, 0x02, 0x40, 0x1c"
    );
    assert_eq!(statement["short_directive"], ".cfi_offset %rbx, -16");
    let output = printed(&["--format", "json", "{skip 0; breg7 0}"]);
    let document = json::document(output);
    let statement = &document["statements"][0];
    assert!(
        statement["formula"].is_null() && statement["no_formula_reason"].is_string(),
        "{statement}"
    );
}
