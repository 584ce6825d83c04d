//! `unspool check`, as a user calls it.

use std::fs;
use std::path::Path;

use serde_json::Value;
use unspool_testing::{Finish as _, packages};

use crate::harness::{self, TestFolder};
use crate::json;

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

/// The same with the directives for it.
const RIGHT: &str = "\
\t.globl\tr
\t.type\tr, @function
r:
\t.cfi_startproc
\tpush\t%rdi
\t.cfi_adjust_cfa_offset 8
\tcall\tg
\tpop\t%rdi
\t.cfi_adjust_cfa_offset -8
\tret
\t.cfi_endproc
\t.size\tr, . - r
";

fn run(folder: &TestFolder, words: &str, status: i32) -> (String, String) {
    run_with(folder, &[], words, status)
}

/// With these variables in the environment.
fn run_with(
    folder: &TestFolder,
    variables: &[(&str, &str)],
    words: &str,
    status: i32,
) -> (String, String) {
    let mut command = harness::unspool_in(folder.path(), &["check"]);
    command.envs(variables.iter().copied());
    let output = folder.started(&mut command, words).finish();
    let output = output.ended_with(status);
    (output.out, output.err)
}

/// Include folders, definitions and machine options, in the usual variables.
#[test]
fn source_is_assembled_with_the_options_of_the_environment() {
    let folder = TestFolder::new();
    fs::create_dir(folder.join("the headers")).unwrap();
    folder.write("the headers/callee.h", "#define CALLEE g\n");
    let text = WRONG.replace("g\n", "CALLEE\n");
    let text = format!("#include <callee.h>\n#ifdef WRONG\n{text}#endif\n");
    folder.write("push.S", text);
    let (_, said) = run(&folder, "push.S", 2);
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
        let (out, err) = run_with(&folder, variables, "push.S", status);
        assert!((out.clone() + &err).contains(found), "{out}{err}");
    }
    run_with(&folder, &[("CFLAGS", defined)], "--fix push.S", 0);
    let fixed = fs::read_to_string(folder.join("push.S")).unwrap();
    assert!(
        fixed.contains("\tpush\t%rdi\n\t.cfi_adjust_cfa_offset 8\n"),
        "{fixed}"
    );
}

/// Regressions: a temporary file was named, and the command of `$CC` was not reported.
#[test]
fn assembler_errors_name_the_given_path() {
    let folder = TestFolder::new();
    let nasm = "section .text\nglobal f\nf: mov rax, rdi\n ret\n";
    folder.write("sum.asm", nasm);
    folder.write("bad.s", "\tno such instruction\n");
    folder.write("-dash.s", "f:\t.cfi_startproc\n\tret\n\t.cfi_endproc\n");
    let wanted = "sum.asm: not an assembly source file for cc (expected .s or .S): if it is for another assembler, assemble it first (NASM: nasm -f elf64 -g)";
    for command in ["check", "annotate"] {
        for (cc, words, status, wanted) in [
            ("cc", "sum.asm", 2, wanted),
            ("false", "bad.s", 2, "false ended with exit status: 1"),
            ("cc", "bad.s", 2, "bad.s:1: Error"),
            ("cc", "-- -dash.s", 0, ""),
        ] {
            let mut unspool = harness::unspool();
            let unspool = folder.started(unspool.arg(command).env("CC", cc), words);
            let said = unspool.finish().ended_with(status).err;
            assert!(said.contains(wanted) && !said.contains("/tmp"), "{said}");
        }
    }
}

/// Regressions: paths that the user did not give were reported, and calls of made-up addresses.
#[test]
fn source_and_what_is_called_have_their_names() {
    let folder = TestFolder::new();
    let text = "\t.globl f\n\t.type f, @function\nf:\t.cfi_startproc\n\tpush %rax\n\tcall elsewhere\n\tpop %rax\n\tret\n\t.cfi_endproc\n";
    folder.write("f.s", text);
    let (out, _) = run(&folder, "f.s", 1);
    assert!(out.starts_with("f.s:5: refuted CFI001"), "{out}");
    assert!(out.contains(" call elsewhere "), "{out}");
}

#[test]
fn a_finding_says_where_what_and_what_to_write() {
    let folder = TestFolder::new();
    folder.write("push.s", WRONG);
    let (out, _) = run(&folder, "push.s", 1);
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
    folder.write("push.s", mended);
    let (out, _) = run(&folder, "push.s", 0);
    assert!(out.contains("3 rows: 3 proven"), "{out}");
}

#[test]
fn files_without_code_are_rejected() {
    let folder = TestFolder::new();
    folder.write("text", "no code\n");
    folder.write("bad.s", "\tno such instruction\n");
    folder.write("empty", "");
    fs::create_dir(folder.join("nothing")).unwrap();
    let refused = [
        ("text", "not an ELF file"),
        ("empty", "empty"),
        ("absent", "cannot read absent: No such file"),
        ("absent.s", "cannot read absent.s: No such file"),
        ("bad.s", "cannot assemble it"),
        ("nothing", "a folder without ELF files"),
    ];
    for (file, words) in refused {
        let (out, err) = run(&folder, file, 2);
        assert!(
            err.contains(words) && err.contains(file),
            "{file}: {out}{err}"
        );
    }
}

#[test]
fn a_kind_of_finding_is_explained() {
    let folder = TestFolder::new();
    let (out, _) = run(&folder, "--explain cfi002", 0);
    assert!(
        out.starts_with("CFI002 cfa-register\n\nThe register"),
        "{out}"
    );
    assert!(out.contains("**Remedy.** `.cfi_def_cfa %reg, N`"), "{out}");
    let by_name = run(&folder, "--explain cfa-register", 0);
    assert_eq!(out, by_name.0);
    let (_, err) = run(&folder, "--explain CFI999", 2);
    assert!(
        err.contains("`CFI999` is not a kind of finding: there are CFI001, "),
        "{err}"
    );
    let (_, err) = run(&folder, "--explain CFI001 f.s", 2);
    assert!(err.contains("cannot be used with"), "{err}");
}

/// The summary names each assumption, and the documents for programs are of one report.
#[test]
fn each_format_is_of_one_report() {
    let folder = TestFolder::new();
    let indexed = "\tmov\t%edi, -64(%rsp,%rcx,4)\n\tpush";
    let text = format!("{WRONG}{}", RIGHT.replace("\tpush", indexed));
    folder.write("push.s", text);
    let (out, _) = run(&folder, "push.s", 1);
    let said =
        "push.s: 3 proven rows are right only if no array on the stack is written past its end";
    assert!(out.contains(said), "{out}");
    let (out, _) = run(&folder, "--format json push.s", 1);
    let json = json::document(out);
    assert_eq!(json["schema"], "unspool.check");
    assert_eq!(json["files"][0]["findings"][0]["code"], "CFI001");
    let (out, _) = run(&folder, "--format sarif push.s", 1);
    let sarif: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(sarif["runs"][0]["results"][0]["ruleId"], "CFI001");
    let version = &sarif["runs"][0]["tool"]["driver"]["version"];
    assert_eq!(*version, json["unspool_version"]);
    let (out, _) = run(&folder, "--format github push.s", 1);
    assert!(out.starts_with("::error file="), "{out}");
}

/// Each option, and the comments of source that an object file's line numbers name.
#[test]
fn suppressions_are_read_and_written() {
    let folder = TestFolder::new();
    let write = |name: &str, text: &str| drop(folder.write(name, text));
    write("push.s", WRONG);
    write("known", "CFI001 push.s:f as it is\n* *:g* none\n");
    let (out, err) = run(&folder, "--suppressions known push.s", 0);
    assert!(out.contains("push.s: 1 findings suppressed"), "{out}");
    assert!(err.contains("known:2: suppresses no finding"), "{err}");
    write("bad", "\nCFI1 a:b c\n");
    let (_, err) = run(&folder, "--suppressions bad push.s", 2);
    assert!(
        err.contains("bad:2: `CFI1` is not a kind of finding"),
        "{err}"
    );

    let baseline = "--baseline known.json push.s";
    let (_, err) = run(&folder, &format!("--write-baseline {baseline}"), 0);
    assert!(err.contains("known.json: 1 findings written"), "{err}");
    run(&folder, baseline, 0);
    write("push.s", RIGHT);
    let (_, err) = run(&folder, baseline, 0);
    assert!(err.contains("known.json: 1 findings are gone"), "{err}");
    write("known.json", "{}");
    let (_, err) = run(&folder, baseline, 2);
    assert!(err.contains("known.json: missing field"), "{err}");

    let allowed = "\tcall\tg\t# unspool: allow CFI001 it is known\n";
    write("push.s", &WRONG.replace("\tcall\tg\n", allowed));
    folder.tool("as", "-g -o push.o push.s");
    let (out, _) = run(&folder, "push.o", 0);
    assert!(out.contains("push.o: 1 findings suppressed"), "{out}");
    write(
        "push.s",
        &WRONG.replace("\tcall\tg\n", "\tcall\tg\t# unspool: allow CFI001\n"),
    );
    let (out, _) = run(&folder, "push.s", 1);
    assert!(
        out.contains("push.s:6: refuted CFI015 this allows nothing without a reason"),
        "{out}"
    );
}

#[test]
fn archives_are_checked_member_by_member() {
    let folder = TestFolder::new();
    let long = "a_name_of_more_than_16_characters";
    let data = "\t.data\n\t.long 1\n";
    for (name, text) in [(long, WRONG), ("right", RIGHT), ("data", data)] {
        folder.write(&format!("{name}.s"), text);
        folder.tool("as", &format!("-o {name}.o {name}.s"));
    }
    let members = format!("{long}.o right.o data.o data.s");
    folder.tool("ar", &format!("rcs lib.a {members}"));
    let (out, err) = run(&folder, "lib.a", 1);
    assert!(
        out.starts_with("lib.a(a_name_of_more_than_16_characters.o):0x1: refuted CFI001 "),
        "{out}"
    );
    // A line for each member with findings, and one for all.
    let member = format!("lib.a({long}.o): 1 rows: 0 proven, 1 refuted, ");
    assert!(
        out.contains(&member) && !out.contains("lib.a(right.o)"),
        "{out}"
    );
    let (summary, _) = run(&folder, "--summary lib.a", 1);
    assert!(
        summary.starts_with(&member) && summary.lines().count() == 2,
        "{summary}"
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
    let (out, _) = run(&folder, "--format json lib.a", 1);
    let report = json::document(out);
    assert_eq!(report["files"][1]["file"], "lib.a(right.o)");

    folder.tool("ar", "rcsT thin.a right.o");
    folder.tool("ar", "rcs none.a data.o");
    let whole = folder.bytes("lib.a");
    folder.write("cut.a", &whole[..whole.len() / 2]);
    for (name, problem) in [
        ("thin.a", "thin archive"),
        ("none.a", "no member has an unwind table"),
        ("cut.a", "cannot be unpacked"),
    ] {
        let (_, err) = run(&folder, name, 2);
        assert!(err.contains(problem) && err.contains(name), "{name}: {err}");
    }
}

/// The two kernels of GMP without directives (docs/checking.md) are members of glibc's archive.
#[test]
fn errors_in_libc_are_found_in_its_archive() {
    let libc = packages::path("/usr/lib/x86_64-linux-gnu/libc.a").unwrap();
    let words = format!("--lenient {}", libc.display());
    let (out, _) = run(&TestFolder::new(), &words, 1);
    for name in ["addmul_1", "submul_1"] {
        let finding = format!(
            "libc.a({name}.o):0x2: refuted CFI001 the CFA is rsp+24, and declared rsp+8: in __mpn_{name}+0x2"
        );
        assert!(out.contains(&finding), "{finding}: {out}");
    }
}

#[test]
fn kernel_modules_are_checked_as_they_are_installed() {
    let folder = TestFolder::new();
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
    folder.write("m.s", &text);
    folder.tool("as", "-o m.o m.s");
    folder.tool("ld", "-r -o m.ko m.o");
    folder.tool("xz", "--keep --check=crc32 m.ko");
    folder.tool("zstd", "-q m.ko");
    folder.tool("gzip", "--keep m.ko");
    let (plain, _) = run(&folder, "m.ko", 1);
    assert_eq!(plain.matches("refuted CFI001").count(), 2, "{plain}");
    assert!(
        plain.contains("in init+0x1") && plain.contains("in leave+0x1"),
        "{plain}"
    );
    for extension in ["xz", "zst", "gz"] {
        let name = format!("m.ko.{extension}");
        let (out, _) = run(&folder, &name, 1);
        assert_eq!(out.replace(&name, "m.ko"), plain);
        let whole = folder.bytes(&name);
        let cut = format!("cut.{extension}");
        folder.write(&cut, &whole[..whole.len() / 2]);
        let (_, err) = run(&folder, &cut, 2);
        assert!(
            err.contains(&cut) && err.contains("cannot be unpacked"),
            "{err}"
        );
    }
    folder.tool("strip", "--remove-section=.eh_frame m.ko");
    let (_, err) = run(&folder, "m.ko", 2);
    assert!(
        err.contains("m.ko: no unwind table") && err.contains("-fasynchronous-unwind-tables"),
        "{err}"
    );
}

#[test]
fn a_finding_has_its_path_and_insertion_line() {
    let folder = TestFolder::new();
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
    folder.write("way.s", text);
    let (out, _) = run(&folder, "way.s", 1);
    assert!(
        out.contains(
            "    by way of line 8 -> line 14\n    write after line 8: .cfi_remember_state; write after line 11: .cfi_restore_state; write after line 15: .cfi_adjust_cfa_offset -24\n"
        ),
        "{out}"
    );
    let (out, _) = run(&folder, "--format json way.s", 1);
    let report = json::document(out);
    let finding = &report["files"][0]["findings"][0];
    assert_eq!(finding["fix_after_line"], 11);
    // sub 4 bytes, test 2, je 2, add 4, ret 1.
    assert_eq!(finding["jumps"], serde_json::json!([["0x6", "0xd"]]));
    let mut lines: Vec<&str> = text.lines().collect();
    lines.insert(11, finding["fix"].as_str().unwrap());
    folder.write("way.s", lines.join("\n") + "\n");
    // The finding hidden by it appears: the directive after the last add.
    let (out, _) = run(&folder, "way.s", 1);
    assert!(
        out.contains("write after line 16: .cfi_adjust_cfa_offset -24"),
        "{out}"
    );

    // Between two instructions of one line, there is no line for a directive.
    let shared = text.replace(
        "\tsub\t$24, %rsp\n\t.cfi_adjust_cfa_offset\t24\n",
        "\tsub\t$24, %rsp; nop\n",
    );
    folder.write("way.s", shared);
    let (out, _) = run(&folder, "way.s", 1);
    assert!(
        out.contains("write before 4: .cfi_adjust_cfa_offset 24"),
        "{out}"
    );
}

#[test]
fn the_summary_counts_what_is_listed() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../check/corpus");
    let text = fs::read_to_string(corpus.join("signal_trampoline.s")).unwrap();
    let folder = TestFolder::new();
    folder.write("signal.s", text);
    let wrong = [("CFLAGS", "-Wa,--defsym,WRONG=1")];
    let (right, _) = run(&folder, "signal.s", 0);
    let (out, _) = run_with(&folder, &wrong, "signal.s", 1);
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
fn folders_are_searched_for_what_can_be_checked() {
    let folder = TestFolder::new();
    fs::create_dir_all(folder.join("a/b")).unwrap();
    folder.write("a/right.s", RIGHT);
    folder.write("a/b/wrong.s", WRONG);
    folder.write("a/b/notes.txt", "push %rbx");
    folder.tool("as", "-o a/right.o a/right.s");
    let (out, _) = run(&folder, "--summary a", 1);
    let files = out.lines().filter_map(|line| line.split(": ").next());
    assert_eq!(
        files.collect::<Vec<_>>(),
        ["a/b/wrong.s", "a/right.o", "a/right.s"]
    );
}

#[test]
fn registers_of_another_convention_are_named() {
    let folder = TestFolder::new();
    folder.write(
        "f.s",
        "\t.globl f\n\t.type f, @function\nf:\t.cfi_startproc\n\tmov %rdi, %rbx\n\tret\n\t.cfi_endproc\n\t.size f, . - f\n",
    );
    run(&folder, "f.s", 1);
    run(&folder, "--preserves rbp,rbx f.s", 1);
    let (out, _) = run(&folder, "--preserves rbp f.s", 0);
    assert!(
        out.contains("1 entries follow the convention of --preserves"),
        "{out}"
    );
    let (_, err) = run(&folder, "--preserves xmm0 f.s", 2);
    assert!(err.contains("`xmm0` is not a general register"), "{err}");
}

/// The row of inline assembly is the compiler's: no directive can change it.
#[test]
fn remedies_for_compiled_source_are_commands() {
    let folder = TestFolder::new();
    folder.write(
        "inline.c",
        "long f(long n) { __asm__ volatile(\"push %%rbx; call g; pop %%rbx\" : \"+a\"(n)); return n; }\n",
    );
    // Without line numbers, the compiler's signature shows it.
    for options in ["-g", "-g0"] {
        folder.tool("gcc", &format!("-O2 {options} -mno-red-zone -c inline.c"));
        let (out, _) = run(&folder, "inline.o", 1);
        assert!(
            out.contains("    unspool check --fix inline.o writes the row"),
            "{options}: {out}"
        );
        run(&folder, "--fix inline.o", 0);
    }
}

#[test]
fn one_function_of_a_file_is_reported() {
    let folder = TestFolder::new();
    folder.write("f.s", format!("{WRONG}{RIGHT}"));
    let (out, _) = run(&folder, "--function r f.s", 0);
    assert!(out.starts_with("f.s: 3 rows: 3 proven, 0 refuted"), "{out}");
    let (out, _) = run(&folder, "--function f f.s", 1);
    assert!(out.contains("f.s: 1 rows: 0 proven, 1 refuted"), "{out}");
    let (_, err) = run(&folder, "--function g f.s", 2);
    assert!(err.contains("no file has the function g"), "{err}");
}

/// Two sections of code, so that addresses of the file's layout mean nothing to a reader.
const SECTIONS: &str = "\
\t.section .text.first, \"ax\", @progbits
own:\t.cfi_startproc
\tret
\t.cfi_endproc
\t.section .text.second, \"ax\", @progbits
\t.globl f
\t.type f, @function
f:\t.cfi_startproc
\ttest %edi, %edi
\tje 1f
\tpush %rax
\t.cfi_adjust_cfa_offset 8
\tcall own
1:\tmov $1, %eax
\tret
\t.cfi_endproc
\t.size f, . - f
";

/// Places in messages are lines of assembly source, or else the addresses that objdump prints.
#[test]
fn places_are_those_of_the_source_and_of_objdump() {
    let folder = TestFolder::new();
    folder.write("sections.s", SECTIONS);
    let (out, _) = run(&folder, "sections.s", 1);
    let hint = "one path leads over the call of own at line 13, which may not return";
    assert!(out.contains(hint), "{out}");
    assert!(
        out.contains("if the call of own at line 13 does not return, write ud2 after it"),
        "{out}"
    );
    let of_line = "the stack height on the path from line 10 differs from that on the path from";
    assert!(out.contains(of_line), "{out}");
    folder.tool("gcc", "-c sections.s -o sections.o");
    let listing = folder.tool(
        "objdump",
        "-d --no-show-raw-insn -j .text.second sections.o",
    );
    let address = |mnemonic: &str| {
        let mut lines = listing.lines().filter_map(|line| line.split_once(':'));
        let line = lines.find(|(_, text)| text.trim().starts_with(mnemonic));
        line.expect("objdump lists it").0.trim().to_owned()
    };
    let (call, joined) = (address("call"), address("mov"));
    let (out, _) = run(&folder, "sections.o", 1);
    assert!(
        out.contains(&format!("the call of own at .text.second+0x{call},")),
        "{out}"
    );
    assert!(
        out.contains(&format!("sections.o:.text.second+0x{joined}: ")),
        "{out}"
    );
    let called = format!(" {call}  call .text.first+0x0 ");
    assert!(out.contains(&called), "{out}");
    let listed = out.lines().find_map(|line| line.strip_prefix("  > "));
    assert_eq!(
        listed.and_then(|line| line.split_whitespace().next()),
        Some(joined.as_str()),
        "{out}"
    );
}

/// A report names the undefined symbols that are assumed not to return.
#[test]
fn functions_that_are_assumed_not_to_return_are_named() {
    let folder = TestFolder::new();
    let source = SECTIONS.replace("own\n1:", "fatal@PLT\n\t.cfi_adjust_cfa_offset -8\n1:");
    folder.write("assumed.s", &source);
    let (out, _) = run(&folder, "assumed.s", 0);
    let line = "3 proven rows assume that fatal does not return: docs/checking.md, assumption 5";
    assert!(out.contains(line), "{out}");
    folder.tool("gcc", "-c assumed.s");
    for file in ["assumed.s", "assumed.o"] {
        let (out, _) = run(&folder, &format!("--format json {file}"), 0);
        let document = json::document(out.as_bytes());
        let names = &document["files"][0]["functions_assumed_noreturn"];
        assert_eq!(names, &Value::from(vec!["fatal"]), "{file}: {out}");
    }
}
