//! `unspool check --call`, as a user calls it.
#![cfg(target_arch = "x86_64")]

use std::path::{Path, PathBuf};
use std::process::Output;

use unspool_testing::tool;
use xtask::programs;

use crate::harness;
use crate::json;

/// Sources that the tests of the crate `single-step` use.
fn source(name: &str) -> String {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../single-step/tests/programs");
    sources.join(name).to_str().unwrap().to_owned()
}

/// Compiles a source with gcc.
fn build(name: &str, options: &[&str]) -> PathBuf {
    let mut compiler = tool("gcc");
    compiler.args(options);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    programs::build(compiler, Path::new(&source(name)), &[], folder).unwrap()
}

fn call(function: &str, arguments: &[&str], file: &str) -> Output {
    let mut command = harness::unspool();
    command.args(["check", "--call", function]);
    command.args(arguments).arg(file).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Asserts the exit status, and that the output contains some words.
fn tells(output: &Output, code: i32, wanted: &[&str]) {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    let message = match code {
        2 => text(&output.stderr),
        _ => text(&output.stdout),
    };
    for words in wanted {
        assert!(message.contains(words), "`{words}` is not in:\n{message}");
    }
}

#[test]
fn assembly_source() {
    let file = source("asm.s");
    let wanted = [
        "asm.s: 1 of 1 functions called, 3 of 3 rows executed: 0 findings",
        "right: 8 of 8 calls returned with all registers preserved (--seed 1)",
    ];
    tells(&call("right", &[], &file), 0, &wanted);
    let wanted = [
        "refuted CFI001 the CFA is rsp+16, and declared rsp+8: in wrong+0x1",
        ".cfi_adjust_cfa_offset 8",
        "wrong: 2 of 2 calls returned",
    ];
    tells(&call("wrong", &["--calls", "2"], &file), 1, &wanted);
}

#[test]
fn whatever_has_the_function() {
    for options in [
        &["-c"][..],
        &["-shared", "-nostdlib"],
        &["-nostartfiles", "-static"],
        &["-nostartfiles", "-pie"],
    ] {
        let file = build("called.s", options);
        let file = file.to_str().unwrap();
        let arguments = ["--arg", "pointer", "--arg", "7", "--arg", "0-9"];
        let wanted = ["expects: 8 of 8 calls returned with all registers preserved"];
        tells(&call("expects", &arguments, file), 0, &wanted);
        // Past there the values are unexpected.
        let wanted = ["call 8 ended by SIGILL at", "0 of 8 calls returned"];
        tells(
            &call("expects", &["--arg", "0x40"], file),
            1,
            &["0 of 8 calls"],
        );
        tells(&call("expects", &arguments[..4], file), 1, &wanted);
    }
}

#[test]
fn calls_that_do_not_return() {
    let file = source("called.s");
    let wanted = [
        "crashes: never executed: the rows at +0x9",
        "crashes: call 1 ended by SIGSEGV at crashes+0x1 called with rdi=0x",
        "crashes: 0 of 8 calls returned",
    ];
    tells(&call("crashes", &[], &file), 1, &wanted);
    let wanted = ["call 1 did not return: the process ended, exit status: 7"];
    tells(&call("leaves", &[], &file), 1, &wanted);
    let wanted = ["r12 is 0x1, and was to be 0x5a12"];
    tells(&call("loses", &[], &file), 1, &wanted);
    let arguments = ["--calls", "1", "--time-limit", "1"];
    let wanted = ["call 1 had not returned in time (--time-limit)"];
    tells(&call("turns", &arguments, &file), 1, &wanted);
    // The remaining calls are not made.
    let wanted = [
        "turns: 0 of 1 calls returned",
        "turns: 7 calls were not made, since one had not returned in time",
    ];
    tells(&call("turns", &["--time-limit", "1"], &file), 1, &wanted);
}

/// A regression: functions from assemblers without symbol types, such as NASM, were not found.
#[test]
fn functions_without_type_and_size() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("bare.s");
    let text =
        "\t.globl first, second\nfirst:\tpush %rbx\n\tpop %rbx\n\tret\nsecond:\tnop\n\tret\n";
    std::fs::write(&source, text).unwrap();
    let file = source.to_str().unwrap();
    for function in ["first", "second"] {
        let arguments = ["--from", "synth"];
        let wanted = ["8 of 8 calls returned with all registers preserved"];
        tells(&call(function, &arguments, file), 0, &wanted);
    }
    // Nor is a temporary file named.
    let wanted = format!("{file} has no function third");
    tells(&call("third", &[], file), 2, &[&wanted]);
}

#[test]
fn the_report_for_programs() {
    let arguments = ["--format", "json", "--seed", "9", "--arg", "3"];
    let output = call("crashes", &arguments, &source("called.s"));
    tells(&output, 1, &[]);
    let document = json::document(&output.stdout);
    assert_eq!(document["schema"], "unspool.check-call");
    assert_eq!(
        (&document["function"], &document["seed"]),
        (&"crashes".into(), &9.into())
    );
    let first = &document["calls"][0];
    assert_eq!(
        (&first["outcome"], &first["signal"]),
        (&"signal".into(), &"SIGSEGV".into())
    );
    assert_eq!(
        (&first["location"]["function"], &first["location"]["offset"]),
        (&"crashes".into(), &1.into())
    );
    assert_eq!(first["location"]["file"], source("called.s"));
    assert_eq!(first["arguments"]["rdi"], "0x3");
    let function = &document["files"][0]["functions"][0];
    assert_eq!(
        (&function["entry_count"], &function["rows_executed"]),
        (&8.into(), &2.into())
    );
    let output = call("loses", &["--format", "json"], &source("called.s"));
    let document = json::document(&output.stdout);
    let clobbered = &document["calls"][0]["clobbered_registers"];
    assert_eq!(document["calls"][0]["outcome"], "returned");
    assert_eq!(
        (&clobbered[1]["register"], &clobbered[1]["actual"]),
        (&"r12".into(), &"0x1".into())
    );
}

#[test]
fn uncallable_functions_are_rejected() {
    let file = source("asm.s");
    for (function, arguments, words) in [
        ("no_such", &[][..], "has no function no_such"),
        (
            "right",
            &["--arg", "many"],
            "is not a value: write `pointer`",
        ),
        ("right", &["--arg", "9-3"], "9 is greater than 3"),
        ("right", &["--format", "sarif"], "it is text or json"),
        ("right", &["/bin/true"], "--call takes one file"),
        ("right", &["--run"], "cannot be used with"),
    ] {
        tells(&call(function, arguments, &file), 2, &[words]);
    }
    tells(&call("f", &[], "/dev/null"), 2, &["/dev/null"]);
}

/// Calls, tail calls, calls by pointers and accesses of symbols that nobody defines.
const UNDEFINED: &str = "\
\t.macro function name, body:vararg
\t.globl \\name
\t.type \\name, @function
\\name:\t.cfi_startproc
\t\\body
\tret
\t.cfi_endproc
\t.size \\name, . - \\name
\t.endm
\tfunction calls, call helper@PLT
\tfunction jumps, jmp elsewhere
\tfunction points, jmp *pointer(%rip)
\tfunction reads, mov table+24(%rip), %eax
\tfunction whole, call strlen@PLT
\tfunction perhaps, lea optional(%rip), %rax
\t.weak optional
\t.data
pointer:
\t.quad by_pointer
";

/// Where a call uses a symbol that nobody defines, the report names that.
#[test]
fn undefined_symbols_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("undefined.s");
    std::fs::write(&source, UNDEFINED).unwrap();
    let [object, archive] = ["undefined.o", "undefined.a"].map(|name| folder.path().join(name));
    let made = |command: &mut std::process::Command| {
        assert!(command.status().unwrap().success(), "{command:?}");
    };
    made(tool("gcc").arg("-c").args([&source]).arg("-o").arg(&object));
    made(tool("ar").arg("rcs").args([&archive, &object]));
    for file in [&source, &object, &archive] {
        let file = file.to_str().unwrap();
        for (function, symbol, verb) in [
            ("calls", "helper", "calls"),
            ("jumps", "elsewhere", "calls"),
            ("points", "by_pointer", "calls"),
            ("reads", "table", "uses"),
        ] {
            let output = call(function, &["--calls", "1"], file);
            let wanted = [
                format!("it {verb} {symbol}, which is not defined"),
                format!("{function}: link {file} with what defines {symbol}, and name that"),
            ];
            tells(&output, 1, &[&wanted[0], &wanted[1]]);
            let output = call(function, &["--calls", "1", "--format", "json"], file);
            let document = json::document(&output.stdout);
            assert_eq!(document["calls"][0]["undefined_symbol"], symbol);
        }
        // The C library is linked, and weak symbols are 0.
        for function in ["whole", "perhaps"] {
            let wanted = ["1 of 1 calls returned with all registers preserved"];
            tells(&call(function, &["--calls", "1"], file), 0, &wanted);
        }
    }
    // Another member has it.
    let other = folder.path().join("other.s");
    let text = "\t.globl helper\n\t.type helper, @function\nhelper:\n\tret\n";
    std::fs::write(&other, text).unwrap();
    let other_object = folder.path().join("other.o");
    made(
        tool("gcc")
            .arg("-c")
            .arg(&other)
            .arg("-o")
            .arg(&other_object),
    );
    made(tool("ar").arg("rcs").args([&archive, &other_object]));
    let output = call("calls", &["--calls", "1"], archive.to_str().unwrap());
    tells(&output, 0, &["1 of 1 calls returned"]);
    // The dynamic linker names what a shared object lacks.
    let library = folder.path().join("library.so");
    let text = "\t.globl f\n\t.type f, @function\nf:\tjmp helper@PLT\n";
    std::fs::write(&other, text).unwrap();
    made(
        tool("gcc")
            .args(["-shared", "-nostdlib"])
            .arg(&other)
            .arg("-o")
            .arg(&library),
    );
    let output = call("f", &["--calls", "1"], library.to_str().unwrap());
    let wanted = [
        "undefined symbol: helper",
        "library.so was not loaded into /bin/sh",
    ];
    tells(&output, 2, &wanted);
}
