//! `unspool check`, as a user calls it.

use std::fs;
use std::path::Path;

use serde_json::Value;
use unspool_testing::{Finish as _, command, tool};

use crate::harness;

/// A function with a `push` that no directive describes.
const WRONG: &str = "\
\t.globl\tf
\t.type\tf, @function
f:
\t.cfi_startproc
\tpush\t%rdi
\tcall\tg
\tpop\t%rdi
\tret
\t.cfi_endproc
\t.size\tf, . - f
";

fn run(folder: &Path, arguments: &[&str], status: i32) -> (String, String) {
    run_with(folder, &[], arguments, status)
}

/// With these variables in the environment.
fn run_with(
    folder: &Path,
    variables: &[(&str, &str)],
    arguments: &[&str],
    status: i32,
) -> (String, String) {
    let mut command = harness::unspool_in(folder, &["check"]);
    let command = command.args(arguments).envs(variables.iter().copied());
    let output = command.finish().ended_with(status);
    (output.out, output.err)
}

/// Include folders, definitions and machine options, in the usual variables.
#[test]
fn source_is_assembled_with_the_options_of_the_environment() {
    let folder = tempfile::tempdir().unwrap();
    let headers = folder.path().join("the headers");
    fs::create_dir(&headers).unwrap();
    fs::write(headers.join("callee.h"), "#define CALLEE g\n").unwrap();
    let text = WRONG.replace("g\n", "CALLEE\n");
    let text = format!("#include <callee.h>\n#ifdef WRONG\n{text}#endif\n");
    fs::write(folder.path().join("push.S"), text).unwrap();
    let (_, said) = run(folder.path(), &["push.S"], 2);
    assert!(said.contains("callee.h: No such file"), "{said}");
    assert!(
        said.contains("(CPPFLAGS and CFLAGS give options)"),
        "{said}"
    );
    let include = "-I 'the headers'";
    let defined = "-DWRONG -I'the headers'";
    let wrong = "push.S:8: refuted CFI001";
    for (variables, status, found) in [
        (&[("CPPFLAGS", include)][..], 0, "push.S: 0 rows"),
        (
            &[("CPPFLAGS", include), ("CFLAGS", "-O2 -DWRONG")],
            1,
            wrong,
        ),
        (&[("CFLAGS", defined)], 1, wrong),
        (&[("CC", &format!("gcc {defined}"))], 1, wrong),
        (
            &[("CFLAGS", &format!("-m32 {defined}"))],
            2,
            "bad register name `%rdi'",
        ),
    ] {
        let (out, err) = run_with(folder.path(), variables, &["push.S"], status);
        assert!((out.clone() + &err).contains(found), "{out}{err}");
    }
    run_with(
        folder.path(),
        &[("CFLAGS", defined)],
        &["--fix", "push.S"],
        0,
    );
    let fixed = fs::read_to_string(folder.path().join("push.S")).unwrap();
    assert!(
        fixed.contains("\tpush\t%rdi\n\t.cfi_adjust_cfa_offset 8\n"),
        "{fixed}"
    );
}

/// Regressions: a temporary file was named, and the command of `$CC` was not reported.
#[test]
fn assembler_errors_name_the_given_path() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write(
        "sum.asm",
        "section .text\nglobal f\nf: mov rax, rdi\n ret\n",
    );
    write("bad.s", "\tno such instruction\n");
    write("-dash.s", "f:\t.cfi_startproc\n\tret\n\t.cfi_endproc\n");
    for command in ["check", "annotate"] {
        let run = |cc: &str, arguments: &[&str]| {
            let mut unspool = harness::unspool();
            unspool.arg(command).args(arguments).current_dir(&folder);
            let output = unspool.env("CC", cc).output().unwrap();
            let said = String::from_utf8(output.stderr).unwrap();
            assert!(!said.contains("/tmp"), "{said}");
            (output.status.code(), said)
        };
        let (status, said) = run("cc", &["sum.asm"]);
        let wanted = "sum.asm: not an assembly source file for cc (expected .s or .S): if it is for another assembler, assemble it first (NASM: nasm -f elf64 -g)";
        assert!(status == Some(2) && said.contains(wanted), "{said}");
        let (status, said) = run("false", &["bad.s"]);
        assert!(
            status == Some(2) && said.contains("false ended with exit status: 1"),
            "{said}"
        );
        let (status, said) = run("cc", &["bad.s"]);
        assert!(
            status == Some(2) && said.contains("bad.s:1: Error"),
            "{said}"
        );
        let (status, said) = run("cc", &["--", "-dash.s"]);
        assert_eq!(status, Some(0), "{said}");
    }
}

/// Regressions: paths that the user did not give were reported, and calls of made-up addresses.
#[test]
fn source_and_what_is_called_have_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let text = "\t.globl f\n\t.type f, @function\nf:\t.cfi_startproc\n\tpush %rax\n\tcall elsewhere\n\tpop %rax\n\tret\n\t.cfi_endproc\n";
    fs::write(folder.path().join("f.s"), text).unwrap();
    let (out, _) = run(folder.path(), &["f.s"], 1);
    assert!(out.starts_with("f.s:5: refuted CFI001"), "{out}");
    assert!(out.contains(" call elsewhere "), "{out}");
}

#[test]
fn assumptions_on_indexed_stores_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let text = "\t.globl f\n\t.type f, @function\nf:\t.cfi_startproc\n\tpush %rbx\n\t.cfi_adjust_cfa_offset 8\n\t.cfi_rel_offset rbx, 0\n\tmov %edi, -64(%rsp,%rcx,4)\n\tpop %rbx\n\t.cfi_adjust_cfa_offset -8\n\t.cfi_restore rbx\n\tret\n\t.cfi_endproc\n";
    fs::write(folder.path().join("f.s"), text).unwrap();
    let (out, _) = run(folder.path(), &["f.s"], 0);
    let said = "f.s: 3 proven rows assume that stores by an index or a count stay inside arrays";
    assert!(out.contains(said), "{out}");
    let (out, _) = run(folder.path(), &["--format", "json", "f.s"], 0);
    let report: Value = serde_json::from_str(&out).unwrap();
    let file = &report["files"][0];
    assert_eq!(file["rows"]["assuming_bounds"], 3, "{out}");
    assert_eq!(file["assuming_bounds"][0], "0x0", "{out}");
    // The number is constant in the code.
    let known = text.replace("mov %edi", "mov $2, %ecx\n\tmov %edi");
    fs::write(folder.path().join("f.s"), known).unwrap();
    let (out, _) = run(folder.path(), &["f.s"], 0);
    assert!(!out.contains("assume"), "{out}");
}

#[test]
fn a_finding_says_where_what_and_what_to_write() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("push.s"), WRONG).unwrap();
    let (out, _) = run(folder.path(), &["push.s"], 1);
    for words in [
        "push.s:6: refuted CFI001 the CFA is rsp+16, and declared rsp+8: in f+0x1",
        "declared rsp+8      is rsp+16",
        "write after line 5: .cfi_adjust_cfa_offset 8",
        "push.s: 1 rows: 0 proven, 1 refuted, 0 unproven, 0 never reached; findings: 1 refuted",
    ] {
        let squeezed = out.split_whitespace().collect::<Vec<_>>().join(" ");
        let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(squeezed.contains(&words), "`{words}` is not in:\n{out}");
    }
    // The proposed directive is right.
    let mended = WRONG
        .replace("%rdi\n\tcall", "%rdi\n\t.cfi_adjust_cfa_offset 8\n\tcall")
        .replace("\tret", "\t.cfi_adjust_cfa_offset -8\n\tret");
    fs::write(folder.path().join("push.s"), mended).unwrap();
    let (out, _) = run(folder.path(), &["push.s"], 0);
    assert!(out.contains("3 rows: 3 proven"), "{out}");
}

#[test]
fn the_report_for_programs_says_the_same() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("push.s"), WRONG).unwrap();
    let (out, _) = run(folder.path(), &["--format", "json", "push.s"], 1);
    let document: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(document["schema"], "unspool.check");
    let file = &document["files"][0];
    assert_eq!(file["rows"]["refuted"], 1);
    let finding = &file["findings"][0];
    assert_eq!(finding["code"], "CFI001");
    assert_eq!(finding["line"], 6);
    assert_eq!(finding["function"], "f");
    assert_eq!(finding["declared"], "rsp+8");
    assert_eq!(finding["computed"], "rsp+16");
    assert_eq!(finding["fix"], ".cfi_adjust_cfa_offset 8");
}

#[test]
fn unproven_rows_are_reported_for_assembly_and_on_request() {
    let folder = tempfile::tempdir().unwrap();
    // It is unknown whether the callee restores the stack.
    let source = WRONG.replace(
        "push\t%rdi\n\tcall\tg\n\tpop\t%rdi",
        "mov\t(%rdi), %rsp\n\tcall\tg",
    );
    fs::write(folder.path().join("switch.s"), source).unwrap();
    let (out, _) = run(folder.path(), &["switch.s"], 1);
    assert!(out.contains("unproven CFI002"), "{out}");
    run(folder.path(), &["--lenient", "switch.s"], 0);
    run(folder.path(), &["/bin/true"], 0);
}

#[test]
fn inline_data_is_not_unreachable_code() {
    let folder = tempfile::tempdir().unwrap();
    let text = "\
\t.globl\tf
\t.type\tf, @function
f:
\t.cfi_startproc
\tmovdqu\t1f(%rip), %xmm0
\tret
\t.balign\t8
1:\t.quad\t0x1234567890, 4
2:\tmov\t$1, %eax
\tret
\t.cfi_endproc
\t.size\tf, . - f
";
    fs::write(folder.path().join("data.s"), text).unwrap();
    let (out, _) = run(folder.path(), &["data.s"], 1);
    // Not line 8.
    assert!(
        out.starts_with("data.s:9: unproven CFI014 ")
            || out.contains("/data.s:9: unproven CFI014 "),
        "{out}"
    );
    assert_eq!(out.matches("CFI014").count(), 1, "{out}");
    let text = text.replace("2:\tmov\t$1, %eax\n\tret\n", "");
    fs::write(folder.path().join("data.s"), text).unwrap();
    run(folder.path(), &["data.s"], 0);
}

#[test]
fn jumps_whose_targets_are_computed_lead_to_code_that_nothing_else_leads_to() {
    let folder = tempfile::tempdir().unwrap();
    let text = "\
\t.globl\tf
\t.type\tf, @function
f:
\t.cfi_startproc
\tsub\t$24, %rsp
\t.cfi_def_cfa_offset\t32
\tlea\t1f(%rip), %rcx
\tshl\t$4, %rdi
\tadd\t%rdi, %rcx
\tjmp\t*%rcx
\t.balign\t16
1:\tlea\t1(%rsi), %rax
\tadd\t$24, %rsp
\t.cfi_remember_state
\t.cfi_def_cfa_offset\t8
\tret
\t.cfi_restore_state
\t.balign\t16
\tlea\t2(%rsi), %rax
\tadd\t$24, %rsp
\t.cfi_def_cfa_offset\t8
\tret
\t.cfi_endproc
\t.size\tf, . - f
";
    let check = |text: &str, status| {
        fs::write(folder.path().join("f.s"), text).unwrap();
        run(folder.path(), &["f.s"], status).0
    };
    check(text, 0);
    // Never refuted: it is a guess.
    let out = check(&text.replace("\t.cfi_restore_state\n", ""), 1);
    assert!(out.contains("f.s:18: unproven CFI001"), "{out}");
    // The jump may lead past the push.
    let out = check(&text.replace("1:\tlea", "1:\tpush\t%rax\n\tlea"), 1);
    assert!(out.contains("f.s:12: unproven CFI014"), "{out}");
}

#[test]
fn files_without_code_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("text"), "no code\n").unwrap();
    fs::write(folder.path().join("bad.s"), "\tno such instruction\n").unwrap();
    fs::write(folder.path().join("empty"), "").unwrap();
    let refused = [
        ("text", "not an ELF file"),
        ("empty", "empty"),
        ("absent", "cannot read absent: No such file"),
        ("absent.s", "cannot read absent.s: No such file"),
        ("bad.s", "cannot assemble it"),
        (".", "directory"),
    ];
    for (file, words) in refused {
        let (out, err) = run(folder.path(), &[file], 2);
        assert!(
            err.contains(words) && err.contains(file),
            "{file}: {out}{err}"
        );
    }
}

#[test]
fn findings_are_written_as_sarif() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("push.s"), WRONG).unwrap();
    let (out, _) = run(folder.path(), &["--format", "sarif", "push.s"], 1);
    let log: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(log["version"], "2.1.0");
    let (run_, result) = (&log["runs"][0], &log["runs"][0]["results"][0]);
    assert_eq!(result["ruleId"], "CFI001");
    assert_eq!(result["level"], "error");
    let place = &result["locations"][0]["physicalLocation"];
    assert_eq!(place["region"]["startLine"], 6);
    let rules = run_["tool"]["driver"]["rules"].as_array().unwrap();
    assert!(rules.iter().any(|rule| rule["id"] == "CFI001"));
    let (out, _) = run(folder.path(), &["--format", "github", "push.s"], 1);
    let (command, message) = out.trim_end().rsplit_once("::").unwrap();
    assert!(command.starts_with("::error file="), "{out}");
    assert!(
        command.ends_with("push.s,line=6,title=CFI001 cfa-offset"),
        "{out}"
    );
    assert!(message.contains(".cfi_adjust_cfa_offset 8"), "{out}");
}

#[test]
fn a_kind_of_finding_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    let (out, _) = run(folder.path(), &["--explain", "cfi002"], 0);
    assert!(
        out.starts_with("CFI002 cfa-register\n\nThe register"),
        "{out}"
    );
    assert!(out.contains("**Remedy.** `.cfi_def_cfa %reg, N`"), "{out}");
    let by_name = run(folder.path(), &["--explain", "cfa-register"], 0);
    assert_eq!(out, by_name.0);
    let (_, err) = run(folder.path(), &["--explain", "CFI999"], 2);
    assert!(
        err.contains("`CFI999` is not a kind of finding: there are CFI001, "),
        "{err}"
    );
    let (_, err) = run(folder.path(), &["--explain", "CFI001", "f.s"], 2);
    assert!(err.contains("cannot be used with"), "{err}");
}

/// The findings of a JSON report: the codes of unsuppressed ones, and the reasons of others.
fn standing(folder: &Path, arguments: &[&str], status: i32) -> (Vec<String>, Vec<String>, String) {
    let mut all = vec!["--format", "json"];
    all.extend(arguments);
    let (out, err) = run(folder, &all, status);
    let report: Value = serde_json::from_str(&out).unwrap();
    let file = &report["files"][0];
    let findings = file["findings"].as_array().unwrap().iter();
    let (standing, suppressed): (Vec<&Value>, Vec<&Value>) =
        findings.partition(|finding| finding["suppressed"].is_null());
    let mut codes: Vec<String> = standing
        .iter()
        .map(|finding| text(&finding["code"]))
        .collect();
    let remarks = file["remarks"].as_array().unwrap();
    codes.extend(remarks.iter().map(|remark| {
        format!(
            "{} {} {}",
            text(&remark["code"]),
            text(&remark["verdict"]),
            remark["line"]
        )
    }));
    let reason = |finding: &&Value| {
        let suppressed = &finding["suppressed"];
        format!(
            "{}: {}",
            text(&suppressed["by"]),
            text(&suppressed["reason"])
        )
    };
    (codes, suppressed.iter().map(reason).collect(), err)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

#[test]
fn comments_in_the_source_allow_findings_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let call = "\tcall\tg\n";
    let none: Vec<String> = Vec::new();
    let cases = [
        // After the line, before it, before its label, in each form of comment.
        (
            "\tcall\tg\t# unspool: allow CFI001 it is known\n",
            0,
            none.clone(),
        ),
        (
            "\t// unspool: allow CFI004, cfa-offset it is known\n\tcall\tg\n",
            0,
            none.clone(),
        ),
        (
            "\t/* unspool: allow CFI001 it is known */\n1:\n\n\tcall\tg\n",
            0,
            none.clone(),
        ),
        // Without a reason, for another finding, on another line, not in a comment, for no finding.
        (
            "\tcall\tg\t# unspool: allow CFI001\n",
            1,
            vec!["CFI001".to_owned(), "CFI015 refuted 6".to_owned()],
        ),
        (
            "\tcall\tg\t# unspool: allow CFI002 it is known\n",
            1,
            vec!["CFI001".to_owned(), "CFI015 note 6".to_owned()],
        ),
        (
            "\tcall\tg\n# unspool: allow CFI001 it is known\n",
            1,
            vec!["CFI001".to_owned(), "CFI015 note 7".to_owned()],
        ),
        (
            "\tcall\tg\n\t.pushsection .rodata; .asciz \"unspool: allow CFI001 it is known\"; .popsection\n",
            1,
            vec!["CFI001".to_owned()],
        ),
        (
            "\tcall\tg\t# unspool: allow CFI999 it is known\n",
            1,
            vec!["CFI001".to_owned(), "CFI015 refuted 6".to_owned()],
        ),
    ];
    for (lines, status, expected) in cases {
        fs::write(folder.path().join("push.S"), WRONG.replace(call, lines)).unwrap();
        let (codes, reasons, err) = standing(folder.path(), &["push.S"], status);
        assert_eq!(codes, expected, "{lines}{err}");
        if status == 0 {
            assert_eq!(reasons, ["comment: it is known"], "{lines}");
        }
    }
    // Allowed findings are not fixed, either.
    let allowed = WRONG.replace(call, "\tcall\tg\t# unspool: allow CFI001 it is known\n");
    fs::write(folder.path().join("push.s"), &allowed).unwrap();
    run(folder.path(), &["--fix", "push.s"], 0);
    assert_eq!(
        fs::read_to_string(folder.path().join("push.s")).unwrap(),
        allowed
    );
}

#[test]
fn object_files_have_the_comments_of_their_source() {
    let folder = tempfile::tempdir().unwrap();
    let allowed = WRONG.replace(
        "\tcall\tg\n",
        "\tcall\tg\t# unspool: allow CFI001 it is known\n",
    );
    fs::write(folder.path().join("push.s"), allowed).unwrap();
    let assembler = tool("as")
        .args(["-g", "-o", "push.o", "push.s"])
        .current_dir(folder.path())
        .status();
    assert!(assembler.unwrap().success());
    let (codes, reasons, _) = standing(folder.path(), &["push.o"], 0);
    assert!(codes.is_empty(), "{codes:?}");
    assert_eq!(reasons, ["comment: it is known"]);
}

#[test]
fn files_of_suppressions_are_by_code_file_and_function() {
    let folder = tempfile::tempdir().unwrap();
    let write = |text: &str| fs::write(folder.path().join("known"), text).unwrap();
    fs::write(folder.path().join("push.s"), WRONG).unwrap();
    let arguments = ["--suppressions", "known", "push.s"];
    for line in [
        "CFI001 push.s:f as it is\n",
        "* *:* as it is",
        "# none\n\n cfa-offset */push.*:*f as it is",
    ] {
        write(line);
        let (codes, reasons, _) = standing(folder.path(), &arguments, 0);
        assert!(codes.is_empty(), "{line}: {codes:?}");
        assert_eq!(reasons, ["file: as it is"], "{line}");
    }
    for line in [
        "CFI002 push.s:f as it is\n",
        "CFI001 push:f as it is",
        "CFI001 push.s:g* as it is",
    ] {
        write(line);
        let (codes, _, err) = standing(folder.path(), &arguments, 1);
        assert_eq!(codes, ["CFI001"], "{line}");
        assert!(
            err.contains("known:1: suppresses no finding"),
            "{line}: {err}"
        );
    }
    for (line, problem) in [
        ("CFI001 push.s:f", "the reason is missing"),
        ("CFI1 a:b c", "`CFI1` is not a kind of finding"),
        ("* push.s why", "FILE:FUNCTION is missing"),
    ] {
        write(line);
        let (_, err) = run(folder.path(), &arguments, 2);
        assert!(
            err.contains("known:1") && err.contains(problem),
            "{line}: {err}"
        );
    }
}

#[test]
fn a_baseline_has_what_is_known_wherever_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let write = |text: &str| fs::write(folder.path().join("push.s"), text).unwrap();
    write(WRONG);
    let (_, err) = run(
        folder.path(),
        &["--baseline", "known.json", "--write-baseline", "push.s"],
        0,
    );
    assert!(err.contains("known.json: 1 findings written"), "{err}");
    let arguments = ["--baseline", "known.json", "push.s"];
    // At another line and another address.
    write(&WRONG.replace("\tpush", "\tnop\n\n\tpush"));
    let (codes, reasons, _) = standing(folder.path(), &arguments, 0);
    assert!(codes.is_empty(), "{codes:?}");
    assert_eq!(reasons, ["baseline: it is in the baseline"]);
    // The same in another function is a different finding, and a finding that is gone is reported.
    let renamed = WRONG
        .replace("\tf", "\th")
        .replace("f:", "h:")
        .replace("- f", "- h");
    write(&renamed);
    let (codes, _, err) = standing(folder.path(), &arguments, 1);
    assert_eq!(codes, ["CFI001"]);
    assert!(err.contains("known.json: 1 findings are gone"), "{err}");
    fs::write(folder.path().join("known.json"), "{}").unwrap();
    let (_, err) = run(folder.path(), &arguments, 2);
    assert!(err.contains("known.json"), "{err}");
}

/// The rules of the standard are in `sarif.schema.json`, by clause; Python's `jsonschema` applies
/// them.
#[test]
fn sarif_output_follows_its_schema() {
    let folder = tempfile::tempdir().unwrap();
    let allowed = WRONG.replace(
        "\tcall\tg\n",
        "\tcall\tg\t# unspool: allow CFI001 it is known\n",
    );
    let reasonless = WRONG.replace("\tcall\tg\n", "\tcall\tg\t# unspool: allow CFI001\n");
    fs::write(folder.path().join("a push, at 100%.s"), WRONG).unwrap();
    fs::write(folder.path().join("allowed.s"), allowed).unwrap();
    fs::write(folder.path().join("reasonless.s"), reasonless).unwrap();
    fs::write(folder.path().join("known"), "CFI001 bare.o:f as it is").unwrap();
    let assembler = tool("as")
        .args(["-o", "bare.o", "allowed.s"])
        .current_dir(folder.path())
        .status();
    assert!(assembler.unwrap().success());
    let files = ["a push, at 100%.s", "allowed.s", "reasonless.s", "bare.o"];
    let mut arguments = vec!["--format", "sarif", "--suppressions", "known"];
    arguments.extend(files);
    let (out, _) = run(folder.path(), &arguments, 1);
    fs::write(folder.path().join("log.sarif"), &out).unwrap();
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sarif.schema.json");
    let validate = |log: &str| {
        let validator = unspool_testing::packages::path("/usr/bin/jsonschema").unwrap();
        let mut validation = command(validator);
        validation
            .arg("-i")
            .args([Path::new(log), &schema])
            .current_dir(folder.path());
        validation.output().unwrap()
    };
    let validation = validate("log.sarif");
    assert!(validation.status.success(), "{validation:?}\n{out}");
    // This shows that the rules are applied.
    fs::write(
        folder.path().join("bad.sarif"),
        out.replace("\"startLine\": 6", "\"startLine\": 0"),
    )
    .unwrap();
    assert!(!validate("bad.sarif").status.success());

    let log: Value = serde_json::from_str(&out).unwrap();
    let run = &log["runs"][0];
    let rules = run["tool"]["driver"]["rules"].as_array().unwrap();
    let results = run["results"].as_array().unwrap();
    let has_rule = |result: &Value| rules.iter().any(|rule| rule["id"] == result["ruleId"]);
    assert!(results.iter().all(has_rule), "{out}");
    let kinds: Vec<String> = results
        .iter()
        .map(|result| format!("{} {}", result["ruleId"], result["suppressions"][0]["kind"]))
        .collect();
    let expected = [
        "\"CFI001\" null",
        "\"CFI001\" \"inSource\"",
        "\"CFI001\" null",
        "\"CFI015\" null",
        "\"CFI001\" \"external\"",
    ];
    assert_eq!(kinds, expected, "{out}");
}

/// Runs a tool of Debian's.
fn run_tool(folder: &Path, program: &str, arguments: &[&str]) {
    tool(program).args(arguments).current_dir(folder).succeed();
}

#[test]
fn archives_are_checked_member_by_member() {
    let folder = tempfile::tempdir().unwrap();
    let right = WRONG
        .replace("\tcall", "\t.cfi_adjust_cfa_offset 8\n\tcall")
        .replace("\tret", "\t.cfi_adjust_cfa_offset -8\n\tret");
    let data = "\t.data\n\t.long 1\n";
    for (name, text) in [
        ("a_name_of_more_than_16_characters", WRONG),
        ("right", &right),
        ("data", data),
    ] {
        let source = format!("{name}.s");
        fs::write(folder.path().join(&source), text).unwrap();
        run_tool(
            folder.path(),
            "/usr/bin/as",
            &["-o", &format!("{name}.o"), &source],
        );
    }
    let members = [
        "a_name_of_more_than_16_characters.o",
        "right.o",
        "data.o",
        "data.s",
    ];
    run_tool(
        folder.path(),
        "/usr/bin/ar",
        &[["rcs", "lib.a"].as_slice(), &members].concat(),
    );
    let (out, err) = run(folder.path(), &["lib.a"], 1);
    assert!(
        out.starts_with("lib.a(a_name_of_more_than_16_characters.o):0x1: refuted CFI001 "),
        "{out}"
    );
    assert_eq!(out.matches("CFI").count(), 1, "{out}");
    assert!(
        out.ends_with(
            "lib.a: 4 rows: 3 proven, 1 refuted, 0 unproven, 0 never reached; findings: 1 refuted\n"
        ),
        "{out}"
    );
    assert!(
        err.contains("lib.a: 1 members have no unwind table"),
        "{err}"
    );
    let (out, _) = run(folder.path(), &["--format", "json", "lib.a"], 1);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["files"][1]["file"], "lib.a(right.o)");

    run_tool(folder.path(), "/usr/bin/ar", &["rcsT", "thin.a", "right.o"]);
    run_tool(folder.path(), "/usr/bin/ar", &["rcs", "none.a", "data.o"]);
    let whole = fs::read(folder.path().join("lib.a")).unwrap();
    fs::write(folder.path().join("cut.a"), &whole[..whole.len() / 2]).unwrap();
    for (name, problem) in [
        ("thin.a", "thin archive"),
        ("none.a", "no member has an unwind table"),
        ("cut.a", "cannot be unpacked"),
    ] {
        let (_, err) = run(folder.path(), &[name], 2);
        assert!(err.contains(problem) && err.contains(name), "{name}: {err}");
    }
}

/// The two kernels of GMP without directives (docs/checking.md) are members of glibc's archive.
#[test]
fn errors_in_libc_are_found_in_its_archive() {
    let libc = unspool_testing::packages::path("/usr/lib/x86_64-linux-gnu/libc.a").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (out, _) = run(folder.path(), &["--lenient", libc.to_str().unwrap()], 1);
    for name in ["addmul_1", "submul_1"] {
        let finding = format!(
            "libc.a({name}.o):0x2: refuted CFI001 the CFA is rsp+24, and declared rsp+8: in __mpn_{name}+0x2"
        );
        assert!(out.contains(&finding), "{finding}: {out}");
    }
}

#[test]
fn kernel_modules_are_checked_as_they_are_installed() {
    let folder = tempfile::tempdir().unwrap();
    let section = |name: &str, function: &str| {
        let renamed = WRONG
            .replace("\tf", &format!("\t{function}"))
            .replace("f:", &format!("{function}:"));
        let renamed = renamed.replace("- f", &format!("- {function}"));
        format!("\t.section {name}, \"ax\", @progbits\n{renamed}")
    };
    let text = format!(
        "{}{}\t.section .modinfo, \"a\"\n\t.asciz \"license=GPL\"\n",
        section(".init.text", "init"),
        section(".exit.text", "leave")
    );
    fs::write(folder.path().join("m.s"), &text).unwrap();
    run_tool(folder.path(), "/usr/bin/as", &["-o", "m.o", "m.s"]);
    run_tool(folder.path(), "/usr/bin/ld", &["-r", "-o", "m.ko", "m.o"]);
    run_tool(
        folder.path(),
        "/usr/bin/xz",
        &["--keep", "--check=crc32", "m.ko"],
    );
    run_tool(folder.path(), "/usr/bin/zstd", &["-q", "m.ko"]);
    run_tool(folder.path(), "/usr/bin/gzip", &["--keep", "m.ko"]);
    let (plain, _) = run(folder.path(), &["m.ko"], 1);
    assert_eq!(plain.matches("refuted CFI001").count(), 2, "{plain}");
    assert!(
        plain.contains("in init+0x1") && plain.contains("in leave+0x1"),
        "{plain}"
    );
    for extension in ["xz", "zst", "gz"] {
        let name = format!("m.ko.{extension}");
        let (out, _) = run(folder.path(), &[&name], 1);
        assert_eq!(out.replace(&name, "m.ko"), plain);
        let whole = fs::read(folder.path().join(&name)).unwrap();
        let cut = format!("cut.{extension}");
        fs::write(folder.path().join(&cut), &whole[..whole.len() / 2]).unwrap();
        let (_, err) = run(folder.path(), &[&cut], 2);
        assert!(
            err.contains(&cut) && err.contains("cannot be unpacked"),
            "{err}"
        );
    }
    run_tool(
        folder.path(),
        "/usr/bin/strip",
        &["--remove-section=.eh_frame", "m.ko"],
    );
    let (_, err) = run(folder.path(), &["m.ko"], 2);
    assert!(
        err.contains("m.ko: no unwind table") && err.contains("-fasynchronous-unwind-tables"),
        "{err}"
    );
}

/// Assembly in a compiled program is checked as if it were alone: unproven rows are reported.
#[test]
fn linked_assembly_is_checked_as_hand_written() {
    let folder = tempfile::tempdir().unwrap();
    let text = "\t.globl f\n\t.type f, @function\nf:\n\t.cfi_startproc\n\tmov (%rdi), %rsp\n\tcall *%rsi\n\tret\n\t.cfi_endproc\n\t.size f, . - f\n";
    fs::write(folder.path().join("f.s"), text).unwrap();
    fs::write(
        folder.path().join("main.c"),
        "void f(void *); int main(int n, char **v) { f(v); return n; }\n",
    )
    .unwrap();
    run_tool(
        folder.path(),
        "/usr/bin/gcc",
        &["-g", "-O1", "-o", "program", "main.c", "f.s"],
    );
    let (before, _) = run(folder.path(), &["f.s"], 1);
    assert!(before.contains("f.s:6: unproven CFI002"), "{before}");
    let (linked, _) = run(folder.path(), &["program"], 1);
    assert!(linked.contains("f.s:6: unproven CFI002"), "{linked}");
    let (lenient, _) = run(folder.path(), &["--lenient", "program"], 0);
    assert!(!lenient.contains("unproven CFI002"), "{lenient}");
}

/// The author of a function counts, not the author of most of the file.
#[test]
fn missing_entries_and_lost_registers_in_linked_assembly_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let entry = "\t.cfi_startproc\n\tpush %r14\n\t.cfi_adjust_cfa_offset 8\n\tpop %r14\n\t.cfi_adjust_cfa_offset -8\n\t.cfi_endproc\n\tret\n";
    let function = |name: &str, body: &str| {
        format!(
            "\t.globl {name}\n\t.type {name}, @function\n{name}:\n{body}\t.size {name}, . - {name}\n"
        )
    };
    let text = [
        function("none", "\tpush %rbx\n\tpop %rbx\n\tret\n"),
        function(
            "lost",
            "\t.cfi_startproc\n\tmov %rdi, %rbx\n\tmov %rdi, %rax\n\tret\n\t.cfi_endproc\n",
        ),
        function("short", entry),
        "\t.globl untyped\nuntyped:\tpush %rbx\n\tpop %rbx\n\tret\n".to_owned(),
        "\t.section .note.GNU-stack,\"\",@progbits\n".to_owned(),
    ];
    fs::write(folder.path().join("f.s"), text.concat()).unwrap();
    let main = "long none(long), lost(long), short_(void) __asm__(\"short\"); int main(void) { return none(1) + lost(2) + short_(); }\n";
    fs::write(folder.path().join("main.c"), main).unwrap();
    let gcc = |options: &[&str]| run_tool(folder.path(), "/usr/bin/gcc", options);
    gcc(&["-g", "-O1", "-c", "main.c", "f.s"]);
    gcc(&["-o", "program", "main.o", "f.o"]);
    gcc(&["-r", "-o", "both.o", "main.o", "f.o"]);
    for file in ["f.s", "program", "both.o"] {
        let (out, _) = run(folder.path(), &[file], 1);
        for finding in [
            "f.s:4: refuted CFI005 this function has no entry in the unwind table: in none+0x0",
            "f.s:13: refuted CFI010 the caller's rbx is not preserved, though declared unchanged: in lost+0x3",
            "f.s:23: refuted CFI006 control continues where the entry ends: in short+0x2",
            "f.s:29: refuted CFI005 this function has no entry in the unwind table: in untyped+0x0",
        ] {
            assert!(out.contains(finding), "{file}: {finding}: {out}");
        }
        // An entry that is too short is reported once.
        assert!(out.contains("findings: 4 refuted\n"), "{file}: {out}");
    }
}

/// A walk continues past the end of the stack if the entry point looks like a function.
#[test]
fn entry_points_of_source_and_of_programs_say_that_they_are_outermost() {
    let folder = tempfile::tempdir().unwrap();
    let text = "\t.globl _start\n_start:\n\t.cfi_startproc\n\tmov $60, %eax\n\tsyscall\n\tud2\n\t.cfi_endproc\n";
    fs::write(folder.path().join("f.s"), text).unwrap();
    let options = ["-g", "-nostdlib", "-static", "-o", "program", "f.s"];
    run_tool(folder.path(), "/usr/bin/gcc", &options);
    for file in ["f.s", "program"] {
        let (out, _) = run(folder.path(), &[file], 1);
        assert!(out.contains("f.s:4: refuted CFI009"), "{out}");
        assert!(out.contains("1 rows: 0 proven, 1 refuted"), "{out}");
    }
    let right = text.replace("startproc\n", "startproc\n\t.cfi_undefined %rip\n");
    fs::write(folder.path().join("f.s"), right).unwrap();
    run(folder.path(), &["f.s"], 0);
}

/// In code without any table, functions lack entries; without code, there is nothing to check.
#[test]
fn objects_without_a_table_are_reported_with_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let bare = "\t.globl f\nf:\tpush %rbx\n\tcall g\n\tpop %rbx\n\tret\n\t.globl table\ntable:\t.long 1, 2\n";
    for (name, text) in [("f", bare), ("data", "\t.data\n\t.long 1\n")] {
        let source = format!("{name}.s");
        fs::write(folder.path().join(&source), text).unwrap();
        for (option, end) in [("-g", ".o"), ("-W", "_no_lines.o")] {
            let object = format!("{name}{end}");
            let options = [option, "-o", &object, &source];
            run_tool(folder.path(), "/usr/bin/as", &options);
        }
    }
    fs::write(folder.path().join("c.c"), "void f(void) {}\n").unwrap();
    let options = ["-fno-asynchronous-unwind-tables", "-c", "c.c"];
    run_tool(folder.path(), "/usr/bin/gcc", &options);
    for (file, remedy) in [
        ("f.s", "unspool annotate f.s"),
        ("f.o", "f.s writes its entry"),
        ("f_no_lines.o", "unspool synth f_no_lines.o --into"),
        ("c.o", "unspool synth c.o --into OUT"),
    ] {
        let (out, _) = run(folder.path(), &[file], 1);
        assert!(
            out.contains("refuted CFI005") && out.contains(remedy),
            "{out}"
        );
        assert!(out.ends_with("findings: 1 refuted\n"), "{out}");
    }
    let (_, err) = run(folder.path(), &["data.o"], 2);
    assert!(err.contains("data.o: no unwind table"), "{err}");
}

#[test]
fn a_finding_has_its_path_and_insertion_line() {
    let folder = tempfile::tempdir().unwrap();
    // At line 14, the directives for the path from line 7 are missing.
    let text = "\
\t.globl\tf
\t.type\tf, @function
f:
\t.cfi_startproc
\tsub\t$24, %rsp
\t.cfi_adjust_cfa_offset\t24
\ttest\t%edi, %edi
\tje\t1f
\tadd\t$24, %rsp
\t.cfi_adjust_cfa_offset\t-24
\tret

\t# the way that is seldom taken
1:\tcall\tg
\tadd\t$24, %rsp
\tret
\t.cfi_endproc
\t.size\tf, . - f
";
    fs::write(folder.path().join("way.s"), text).unwrap();
    let (out, _) = run(folder.path(), &["way.s"], 1);
    assert!(
        out.contains(
            "    by way of line 8 -> line 14\n    write after line 8: .cfi_remember_state; write after line 11: .cfi_restore_state\n"
        ),
        "{out}"
    );
    let (out, _) = run(folder.path(), &["--format", "json", "way.s"], 1);
    let report: Value = serde_json::from_str(&out).unwrap();
    let finding = &report["files"][0]["findings"][0];
    assert_eq!(finding["fix_after_line"], 11);
    // sub 4 bytes, test 2, je 2, add 4, ret 1.
    assert_eq!(finding["path"], serde_json::json!([["0x6", "0xd"]]));
    let mut lines: Vec<&str> = text.lines().collect();
    lines.insert(11, finding["fix"].as_str().unwrap());
    fs::write(folder.path().join("way.s"), lines.join("\n") + "\n").unwrap();
    // The finding hidden by it appears: the directive after the last add.
    let (out, _) = run(folder.path(), &["way.s"], 1);
    assert!(
        out.contains("write after line 16: .cfi_adjust_cfa_offset -24"),
        "{out}"
    );

    // Between two instructions of one line, there is no line for a directive.
    let shared = text.replace(
        "\tsub\t$24, %rsp\n\t.cfi_adjust_cfa_offset\t24\n",
        "\tsub\t$24, %rsp; nop\n",
    );
    fs::write(folder.path().join("way.s"), shared).unwrap();
    let (out, _) = run(folder.path(), &["way.s"], 1);
    assert!(
        out.contains("write before 4: .cfi_adjust_cfa_offset 24"),
        "{out}"
    );
}

/// The printed findings of a wrong function.
fn printed(body: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "\t.globl\tf\n\t.type\tf, @function\nf:\n\t.cfi_startproc\n{body}\t.cfi_endproc\n\t.size\tf, . - f\n"
    );
    fs::write(folder.path().join("f.s"), text).unwrap();
    run(folder.path(), &["f.s"], 1).0
}

#[test]
fn expressions_are_printed_as_formulas() {
    // The CFA is [rsp+8]+16, and rbx at rsp+8.
    let out = printed(
        "\tpush\t%rbx\n\t.cfi_escape 0x0f, 0x05, 0x77, 0x08, 0x06, 0x23, 0x10\n\t.cfi_escape 0x10, 0x03, 0x02, 0x77, 0x08\n\
        \tmov\t%edi, %ebx\n\tcall\tg\n\tpop\t%rbx\n\t.cfi_def_cfa %rsp, 8\n\t.cfi_restore %rbx\n\tret\n",
    );
    for words in [
        "the CFA is rsp+16, and declared *(rsp+8)+16: in f+0x1",
        "declared *(rsp+8)+16  is rsp+16",
        "the caller's rbx is unchanged, and declared *(rsp+8): in f+0x1",
    ] {
        assert!(out.contains(words), "`{words}` is not in:\n{out}");
    }
    // An expression without a formula is printed by its operations.
    let out = printed(
        "\t.cfi_escape 0x0f, 0x03, 0x77, 0x08, 0x96\n\t.cfi_escape 0x0f, 0x03, 0x77, 0x08, 0xf0\n\tret\n",
    );
    assert!(!out.contains("an expression"), "{out}");
}

/// Both the stack pointer and %rbp determine the CFA; on another stack only %rbp does.
#[test]
fn a_wrong_offset_names_the_declared_register() {
    let output = printed(
        "push %rbp
        .cfi_def_cfa %rsp, 16
        .cfi_offset %rbp, -16
        mov %rsp, %rbp
        .cfi_def_cfa %rbp, -16
        mov %rdi, %rsp
        call *%rsi
        mov %rbp, %rsp
        pop %rbp
        .cfi_def_cfa %rsp, 8
        ret
        ",
    );
    assert_eq!(output.matches("CFI").count(), 1, "{output}");
    for words in [
        "refuted CFI001 the CFA is rbp+16, and declared rbp-16",
        ".cfi_def_cfa %rbp, 16, in place of .cfi_def_cfa %rbp, -16",
    ] {
        assert!(output.contains(words), "{output}");
    }
}

#[test]
fn i386_register_numbers_are_reported() {
    let framed = |number: &str, register: &str| {
        format!(
            "\tpush\t%rbp\n\t.cfi_def_cfa_offset 16\n\t.cfi_offset {number}, -16\n\tmov\t%rsp, %rbp\n\t.cfi_def_cfa_register {register}\n\
            \tcall\tg\n\tpop\t%rbp\n\t.cfi_restore %rbp\n\t.cfi_def_cfa %rsp, 8\n\tret\n"
        )
    };
    let hint = "    register number 5 is rdi on x86-64; ebp has it on i386: %rbp may be meant\n";
    for (number, register) in [("5", "%rbp"), ("%rbp", "5"), ("5", "5")] {
        let out = printed(&framed(number, register));
        let findings = out.matches("f.s:10: ").count();
        assert!(
            out.matches(hint).count() >= findings && findings > 0,
            "{out}"
        );
        assert!(
            out.contains(&format!(
                "write in line {}: ",
                if number == "5" { 7 } else { 9 }
            )),
            "{out}"
        );
    }
    // Here 6 is rbp, and was meant to be rsi.
    let out = printed(
        "\tpush\t%rsi\n\t.cfi_def_cfa_offset 16\n\t.cfi_offset 6, -16\n\tmov\t%rdi, %rsi\n\tpop\t%rsi\n\t.cfi_restore 6\n\t.cfi_def_cfa_offset 8\n\tret\n",
    );
    assert!(
        out.contains("number 6 is rbp on x86-64; esi has it on i386: %rsi may be meant"),
        "{out}"
    );
    // Another mistake is not about numbers.
    let out = printed(&framed("%rbx", "%rbp"));
    assert!(!out.contains("i386"), "{out}");
}

#[test]
fn rules_for_call_clobbered_registers_are_reported() {
    let saved_in_r10 = "\tmov\t%rbx, %r10\n\t.cfi_register %rbx, %r10\n\tmov\t%edi, %ebx\n\tcall\tg\n\tmov\t%r10, %rbx\n\t.cfi_restore %rbx\n\tret\n";
    let counted_from_r10 = "\tlea\t8(%rsp), %r10\n\t.cfi_def_cfa %r10, 0\n\tsub\t$24, %rsp\n\tcall\tg\n\tadd\t$24, %rsp\n\t.cfi_def_cfa %rsp, 8\n\tret\n";
    for (body, message) in [
        (
            saved_in_r10,
            "it cannot be shown that the caller's rbx is r10, as declared",
        ),
        (counted_from_r10, "the CFA is rsp+32, and declared r10"),
    ] {
        let out = printed(body);
        assert!(out.contains(message), "{out}");
        assert!(out.contains("    calls do not preserve r10\n"), "{out}");
        // Only the call causes a finding.
        let without = printed(&body.replace("call\tg", "push\t%rax"));
        assert!(!without.contains("calls do not"), "{without}");
    }
}

#[test]
fn the_summary_counts_what_is_listed() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../check/corpus");
    let text = fs::read_to_string(corpus.join("signal_trampoline.s")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("signal.s"), text).unwrap();
    let wrong = [("CFLAGS", "-Wa,--defsym,WRONG=1")];
    let (right, _) = run(folder.path(), &["signal.s"], 0);
    let (out, _) = run_with(folder.path(), &wrong, &["signal.s"], 1);
    let listed = out.matches(": refuted CFI013 ").count();
    assert!(listed > 0, "{out}");
    let summary = out.lines().last().unwrap();
    // The trampoline's row is counted as refuted, not as proven.
    assert!(summary.contains(" 1 refuted, "), "{out}");
    assert!(
        summary.ends_with(&format!("; findings: {listed} refuted")),
        "{out}"
    );
    assert!(right.lines().last().unwrap().contains(" 0 refuted, "));
    assert!(!right.contains("findings"), "{right}");
}

#[test]
fn a_return_address_that_is_declared_nowhere() {
    let out = printed("\t.cfi_same_value %rip\n\tret\n");
    assert!(
        out.contains("the return address is [cfa-8], and declared unchanged: "),
        "{out}"
    );
}
