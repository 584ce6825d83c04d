//! `unspool check --run`, as a user calls it.
#![cfg(target_arch = "x86_64")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use unspool_testing::tool;
use xtask::programs;

use crate::harness;
use crate::json;

/// The programs that the tests of the crate `single-step` run.
fn build() -> PathBuf {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../single-step/tests/programs");
    let mut compiler = tool("gcc");
    compiler.args(["-O1", "-g", "-pthread"]);
    let assembly = sources.join("asm.s").to_string_lossy().into_owned();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    programs::build(compiler, &sources.join("cases.c"), &[assembly], folder).unwrap()
}

fn run(arguments: &[&str], command: &[&str]) -> Output {
    harness::unspool()
        .args(["check", "--run"])
        .args(arguments)
        .arg("--")
        .args(command)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn mismatches_are_reported_with_their_code() {
    let program = build();
    let program = program.to_str().unwrap();
    let output = run(&[], &[program, "wrong"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(text(&output.stdout), "");
    let messages = text(&output.stderr);
    for words in [
        "refuted CFI001 the CFA is rsp+16, and declared rsp+8: in wrong+0x1",
        "mov %edi, %ebx declared rsp+8 is rsp+16",
        ".cfi_adjust_cfa_offset 8",
        "1 of 22 functions called",
        "functions from compilers, left out: ",
    ] {
        assert!(messages.contains(words), "`{words}` is not in:\n{messages}");
    }
    // The source line is the one after the push.
    let source = fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../single-step/tests/programs/asm.s"
    ));
    let source = source.unwrap();
    let lines = source.lines().enumerate();
    let mut lines = lines.skip_while(|(_, line)| *line != "wrong:");
    let (behind, _) = lines.find(|(_, line)| line.starts_with("\tmov")).unwrap();
    let line = behind + 1;
    for words in [
        format!("asm.s:{line}: refuted CFI001"),
        format!("write before line {line}: .cfi_adjust_cfa_offset 8"),
    ] {
        assert!(
            messages.contains(&words),
            "`{words}` is not in:\n{messages}"
        );
    }
}

#[test]
fn the_report_for_programs() {
    let program = build();
    let report = program.with_extension("json");
    let arguments = ["--format", "json", "-o", report.to_str().unwrap()];
    let output = run(&arguments, &[program.to_str().unwrap(), "wrong"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let document = json::document(fs::read(report).unwrap());
    assert_eq!(document["schema"], "unspool.check-run");
    let file = &document["files"][0];
    let functions = file["functions"].as_array().unwrap();
    let named = |name: &str| functions.iter().find(|f| f["name"] == name).unwrap();
    assert_eq!(named("wrong")["entry_count"], 1);
    assert_eq!(named("wrong")["rows_executed"], 1);
    assert_eq!(named("right")["entry_count"], 0);
    // Three rows: at the entry, after the push, after the pop.
    let never = named("right")["unexecuted_row_addresses"]
        .as_array()
        .unwrap();
    assert_eq!(never.len(), 3);
    assert_eq!(file["findings"][0]["code"], "CFI001");
    assert_eq!(file["findings"][0]["occurrences"], 3);
    // The functions of the C program, including `main`.
    assert!(file["functions_skipped"].as_u64().unwrap() > 20);
}

#[test]
fn a_right_program_ends_with_0_and_keeps_its_output() {
    let program = build();
    let output = run(
        &["--function", "right"],
        &[program.to_str().unwrap(), "longjmps"],
    );
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(
        text(&output.stderr).ends_with("1 of 1 functions called, 3 of 3 rows executed: 0 findings")
    );
    let output = run(&["--module", "libc"], &["/bin/echo", "passed on"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(text(&output.stdout), "passed on");
}

#[test]
fn rows_made_of_the_code() {
    let program = build();
    let program = program.to_str().unwrap();
    let from_code = ["--from", "synth"];
    let output = run(&from_code, &[program, "wrong"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let output = run(&from_code, &[program, "misleads"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let messages = text(&output.stderr);
    assert!(
        messages.contains("the CFA is rsp+8, and declared rsp+16: in misleads+"),
        "{messages}"
    );
    let output = run(&from_code, &[program, "moves"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let messages = text(&output.stderr);
    assert!(
        // Not the last one: functions return.
        messages.ends_with("2 executed instructions have no row"),
        "{messages}"
    );
}

#[test]
fn limits_of_the_result_are_reported() {
    let program = build();
    let program = program.to_str().unwrap();
    let output = run(&[], &[program, "ends"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stderr).contains("the command failed: exit status: 7"));
    // The request was not carried out.
    let output = run(&[], &[program, "nothing"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("none of the 22 functions in scope was called"));
    let output = run(&["--time-limit", "1"], &[program, "endless"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("had not ended after 1 seconds and was killed"));
}

/// A regression: "3 of 3 rows" was reported for a function that took an unobserved path later.
#[test]
fn retired_functions_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let c = "long f(long); int main(void) { for (long i = 0; i < 2000; i++) f(i == 1000); return 0; }\n";
    let asm = "\t.globl f\n\t.type f, @function\nf:\t.cfi_startproc\n\ttest %rdi, %rdi\n\tjne 1f\n\tret\n1:\tpush %rax\n\tpop %rax\n\tret\n\t.cfi_endproc\n\
        \t.size f, . - f\n\t.section .note.GNU-stack,\"\",@progbits\n";
    std::fs::write(folder.path().join("main.c"), c).unwrap();
    std::fs::write(folder.path().join("f.s"), asm).unwrap();
    let mut cc = tool("gcc");
    cc.args(["-g", "-o", "often", "main.c", "f.s"])
        .current_dir(&folder);
    assert!(cc.status().unwrap().success());
    let run = |arguments: &[&str]| {
        let mut unspool = harness::unspool();
        unspool
            .args(["check", "--run"])
            .args(arguments)
            .args(["--", "./often"]);
        text(&unspool.current_dir(&folder).output().unwrap().stderr)
    };
    let report = run(&[]);
    // The program is named as it was given.
    assert!(
        report.starts_with("./often: 1 of 1 functions called"),
        "{report}"
    );
    assert!(
        report.contains("were compared (--visits K compares more): f"),
        "{report}"
    );
    let document = json::document(run(&["--format", "json"]));
    assert_eq!(document["files"][0]["functions"][0]["retired"], true);
    let report = run(&["--visits", "100000"]);
    assert!(
        report.contains("refuted CFI001") && !report.contains("let be"),
        "{report}"
    );
}

#[test]
fn unrunnable_programs_are_rejected() {
    for (arguments, command, words) in [
        (&[][..], &["/dev/null"][..], "cannot run /dev/null"),
        (
            &["--function", "no_such"],
            &["/bin/true"],
            "no module has a function no_such",
        ),
        (
            &["--module", "libno.so"],
            &["/bin/true"],
            "no module libno.so was loaded",
        ),
        (&[], &[], "required"),
    ] {
        let output = run(arguments, command);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let messages = text(&output.stderr);
        assert!(messages.contains(words), "`{words}` is not in:\n{messages}");
    }
}
