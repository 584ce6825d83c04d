//! `unspool check --fix`: the wrong tables of the corpus are mended. Some of what `check` takes for right then is stepped by
//! gdb, whose unwinder must find by it what is true: all with `cargo xtask test --thorough`.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Mutex;
use std::thread;

use serde_json::Value;
use unspool_testing::{Finish as _, sample, tool};
use xtask::corpus::pair::{self, Pair};
use xtask::corpus::program::{PairProgram, Variant};
use xtask::corpus::proof;

use crate::harness;

/// The status, results and messages of `unspool check`.
fn check(folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    let output = harness::unspool_in(folder, &["check"])
        .args(arguments)
        .finish();
    (output.status.code().unwrap(), output.out, output.err)
}

/// The findings, without line numbers.
fn findings(folder: &Path, name: &str) -> BTreeSet<String> {
    let (_, out, _) = check(folder, &["--format", "json", name]);
    let report: Value = serde_json::from_str(&out).unwrap();
    let findings = report["files"][0]["findings"].as_array().unwrap();
    let key = |finding: &Value| {
        let parts = ["code", "function", "offset", "subject"];
        parts.map(|part| finding[part].to_string()).join(" ")
    };
    findings.iter().map(key).collect()
}

#[derive(Debug, PartialEq, Eq)]
enum FixOutcome {
    /// There was no finding to start with.
    NotFound,
    /// It is right now, by `check`, and by single steps where these were made.
    Right,
    /// `check` accepts it, but it is wrong.
    Wrong(String),
    /// A finding remains.
    Left(String),
}

fn outcome(pair: &Pair, is_stepped: bool, folder: &Path) -> FixOutcome {
    let name = format!("{}.s", pair.name);
    let path = folder.join(&name);
    let text = pair::plain(&fs::read_to_string(&pair.path).unwrap(), Variant::Wrong);
    fs::write(&path, &text).unwrap();
    let before = findings(folder, &name);
    let (status, diff, said) = check(folder, &["--diff", &name]);
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        text,
        "{name}: --diff writes"
    );
    assert_eq!(status, i32::from(!diff.is_empty()), "{name}: {said}");
    let (status, _, said) = check(folder, &["--fix", &name]);
    let fixed = fs::read_to_string(&path).unwrap();
    assert_eq!(
        patched(folder, &name, &text, &diff),
        fixed,
        "{name}: --diff shows something else"
    );

    let code = |text: &str| -> Vec<String> {
        let lines = text
            .lines()
            .filter(|line| !line.trim_start().starts_with(".cfi_"));
        lines.map(str::to_owned).collect()
    };
    assert_eq!(
        code(&fixed),
        code(&text),
        "{name}: not only directives were changed"
    );
    let after = findings(folder, &name);
    assert!(
        after.is_subset(&before),
        "{name}: {after:?} were not found before: {before:?}"
    );
    check(folder, &["--fix", &name]);
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        fixed,
        "{name}: not idempotent"
    );
    match status {
        0 if before.is_empty() => return FixOutcome::NotFound,
        0 => {}
        _ => {
            assert_eq!(status, 1, "{name}: {said}");
            return FixOutcome::Left(said.lines().next().unwrap_or_default().to_owned());
        }
    }
    if !is_stepped {
        return FixOutcome::Right;
    }
    let build = |path: &Path, variant| {
        let pair = Pair {
            path: path.to_owned(),
            ..pair.clone()
        };
        PairProgram::build(&pair, variant, folder, &["/usr/bin/as"]).unwrap()
    };
    let wrong = build(&pair.path, Variant::Wrong);
    let ours = build(&path, Variant::Right);
    assert_eq!(wrong.code, ours.code, "{name}");
    stepped(pair, &ours)
}

/// gdb's result for the fixed table.
fn stepped(pair: &Pair, ours: &PairProgram) -> FixOutcome {
    let name = &pair.name;
    let run = match ours.step(pair) {
        Ok(run) => run,
        Err(error) => return FixOutcome::Wrong(error.to_string()),
    };
    assert_eq!(run.exit, "0", "{name}");
    assert!(run.executed.len() > 2, "{name}: nothing was stepped");
    match proof::falsehoods(ours, &run).into_iter().next() {
        Some((address, text)) => FixOutcome::Wrong(format!("{}: {text}", ours.name(address))),
        None => FixOutcome::Right,
    }
}

/// A text patched by `patch` with a diff.
fn patched(folder: &Path, name: &str, text: &str, diff: &str) -> String {
    let copy = folder.join(format!("{name}.patched"));
    let patch = folder.join(format!("{name}.diff"));
    fs::write(&copy, text).unwrap();
    fs::write(&patch, diff).unwrap();
    tool("patch")
        .args(["--fuzz=0", "--quiet"])
        .args([&copy, &patch])
        .succeed();
    fs::read_to_string(&copy).unwrap()
}

/// What became of all pairs of the corpus, of which so many must be right and none wrong. `outcome`
/// is passed whether to step one.
fn mends_the_corpus(outcome: impl Fn(&Pair, bool, &Path) -> FixOutcome + Sync, least: usize) {
    let folder = tempfile::tempdir().unwrap();
    let pairs = pair::all().unwrap();
    let stepped: HashSet<&str> = sample(&pairs, 4).map(|pair| &*pair.name).collect();
    let (next, outcomes) = (Mutex::new(pairs.iter()), Mutex::new(BTreeMap::new()));
    let work = || {
        loop {
            let pair = next.lock().unwrap().next();
            let Some(pair) = pair else { return };
            let outcome = outcome(pair, stepped.contains(&*pair.name), folder.path());
            outcomes.lock().unwrap().insert(pair.name.clone(), outcome);
        }
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|_| scope.spawn(work)).collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    });
    let outcomes = outcomes.into_inner().unwrap();
    assert_eq!(outcomes.len(), pairs.len());
    let count =
        |wanted: &dyn Fn(&FixOutcome) -> bool| outcomes.values().filter(|one| wanted(one)).count();
    let wrong = count(&|one| matches!(one, FixOutcome::Wrong(_)));
    assert_eq!(wrong, 0, "{outcomes:#?}");
    let right = count(&|one| *one == FixOutcome::Right);
    assert!(right >= least, "{right}: {outcomes:#?}");
}

#[test]
fn wrong_tables_of_the_corpus_are_mended() {
    mends_the_corpus(outcome, 125);
}

/// The same in object files, after the assembler.
#[test]
fn wrong_tables_of_the_corpus_are_mended_in_objects() {
    let bin = tempfile::tempdir().unwrap();
    let assembler = bin.path().join("as");
    symlink(env!("CARGO_BIN_EXE_unspool"), &assembler).unwrap();
    let assembler = assembler.to_str().unwrap();
    let outcome = |pair: &Pair, is_stepped, folder: &Path| {
        let build =
            |assembler| PairProgram::build(pair, Variant::Wrong, folder, &[assembler]).unwrap();
        let is_clean = |program: &PairProgram| {
            let object = program.path.with_extension("o");
            check(folder, &[object.to_str().unwrap()]).0 == 0
        };
        let wrong = build("/usr/bin/as");
        if is_clean(&wrong) {
            return FixOutcome::NotFound;
        }
        let ours = build(assembler);
        assert_eq!(wrong.code, ours.code, "{}", pair.name);
        if !is_clean(&ours) {
            return FixOutcome::Left(pair.wrong.clone());
        }
        match is_stepped {
            true => stepped(pair, &ours),
            false => FixOutcome::Right,
        }
    };
    mends_the_corpus(outcome, 104);
}

/// The output of `--fix` for a text, and its messages.
fn fixed(text: &str, status: i32) -> (String, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f.S");
    fs::write(&path, text).unwrap();
    let (found, out, said) = check(folder.path(), &["--fix", "f.S"]);
    assert_eq!(found, status, "{out}{said}");
    (fs::read_to_string(&path).unwrap(), said)
}

#[test]
fn directives_stand_where_people_write_them() {
    let text = "\
#define FRAME 24
\t.globl\tf
f:
\t.cfi_startproc\t\t# the author's words stay
    sub $FRAME, %rsp        // the frame
#ifdef __x86_64__
/* a comment */
1:  call g
#endif
    add $FRAME, %rsp
    ret
\t.cfi_endproc";
    let (fixed, said) = fixed(text, 0);
    let frame = "    sub $FRAME, %rsp        // the frame\n";
    let end = "    add $FRAME, %rsp\n";
    let expected = text
        .replace(frame, &format!("{frame}    .cfi_adjust_cfa_offset 24\n"))
        .replace(end, &format!("{end}    .cfi_adjust_cfa_offset -24\n"));
    assert_eq!(fixed, expected, "{said}");
    assert!(said.contains("f.S: 1 findings fixed, 0 stay"), "{said}");
}

/// A regression: code excluded by `#ifdef` was taken for preceding code, and named as the location.
#[test]
fn directives_do_not_stand_in_what_is_left_out() {
    let text = "\
\t.globl f
\t.type f, @function
f:
\t.cfi_startproc
\tpush %rbx
\t.cfi_adjust_cfa_offset 8
\txor %ebx, %ebx
#ifdef FOO
\tpush %rax
\tpop %rax
#endif
\tpop %rbx
\t.cfi_adjust_cfa_offset -8
\tret
\t.cfi_endproc
";
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("f.S"), text).unwrap();
    let (status, out, _) = check(folder.path(), &["f.S"]);
    assert_eq!(status, 1, "{out}");
    assert!(
        out.contains("write after line 7: .cfi_offset %rbx, -16"),
        "{out}"
    );
    let (fixed, said) = fixed(text, 0);
    let xor = "\txor %ebx, %ebx\n";
    let expected = text.replace(xor, &format!("{xor}\t.cfi_offset %rbx, -16\n"));
    assert_eq!(fixed, expected, "{said}");
}

/// A register pushed under a condition may not be pushed: an offset from the CFA would then differ.
#[test]
fn distances_are_right_without_what_may_be_left_out() {
    let text = "\
\t.globl f
\t.type f, @function
f:
\t.cfi_startproc
#ifndef FOO
\tpush %rax
\t.cfi_adjust_cfa_offset 8
#endif
\tpush %rbx
\t.cfi_adjust_cfa_offset 8
\txor %ebx, %ebx
\tpop %rbx
\t.cfi_adjust_cfa_offset -8
#ifndef FOO
\tpop %rax
\t.cfi_adjust_cfa_offset -8
#endif
\tret
\t.cfi_endproc
";
    let (fixed, said) = fixed(text, 0);
    assert!(
        fixed.contains("\t.cfi_rel_offset %rbx, 0\n"),
        "{fixed}{said}"
    );
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("f.S"), format!("#define FOO\n{fixed}")).unwrap();
    let (status, out, _) = check(folder.path(), &["f.S"]);
    assert_eq!(status, 0, "{out}");
}

#[test]
fn a_state_remembered_in_a_condition_is_restored_there() {
    let text = "\
\t.globl f
\t.type f, @function
f:
\t.cfi_startproc
\ttest %edi, %edi
\tjz 1f
#ifndef FOO
\tpush %rax
\t.cfi_adjust_cfa_offset 8
\tjmp g
#endif
1:\tret
\t.cfi_endproc
";
    let (fixed, said) = fixed(text, 0);
    let expected = text
        .replace("\tpush %rax\n", "\tpush %rax\n\t.cfi_remember_state\n")
        .replace("#endif", "\t.cfi_restore_state\n#endif");
    assert_eq!(fixed, expected, "{said}");
}

#[test]
fn assembly_without_any_directive_gets_all() {
    let (fixed, said) = fixed(
        "\t.globl f\n\t.type f, @function\nf:\n\tpush %rbx\n\tcall g\n\tpop %rbx\n\tret\n",
        0,
    );
    let expected = "\t.globl f\n\t.type f, @function\nf:\n\t.cfi_startproc\n\tpush %rbx\n\t.cfi_adjust_cfa_offset 8\n\t.cfi_offset %rbx, -16\n\
        \tcall g\n\tpop %rbx\n\t.cfi_adjust_cfa_offset -8\n\t.cfi_restore %rbx\n\tret\n\t.cfi_endproc\n";
    assert_eq!(fixed, expected, "{said}");
}

/// An entry that control runs out of is extended, instead of two findings with one cause.
#[test]
fn entries_that_end_too_early_end_where_the_function_does() {
    let text = "\t.globl f\n\t.type f, @function\nf:\t.cfi_startproc\n\tpush %rax\n\t.cfi_adjust_cfa_offset 8\n\tpop %rax\n\t.cfi_adjust_cfa_offset -8\n\t.cfi_endproc\n\tret\n\t.size f, . - f\n";
    let (mended, said) = fixed(text, 0);
    let right = text.replace("\t.cfi_endproc\n\tret\n", "\tret\n\t.cfi_endproc\n");
    assert_eq!(mended, right);
    assert!(said.contains("1 findings fixed, 0 stay"), "{said}");
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("f.s"), text).unwrap();
    let (_, out, _) = check(folder.path(), &["f.s"]);
    assert!(out.starts_with("f.s:6: refuted CFI006"), "{out}");
    assert!(
        out.contains("move line 8 after line 9: .cfi_endproc"),
        "{out}"
    );
    assert!(out.ends_with("findings: 1 refuted\n"), "{out}");
    let (_, _, said) = check(folder.path(), &["--diff", "f.s"]);
    assert!(
        said.contains("1 findings would be fixed, 0 would stay"),
        "{said}"
    );
}

/// No directive can fix pops in the wrong order.
#[test]
fn registers_that_the_code_loses_are_not_hidden() {
    let text = "\t.globl f\n\t.type f, @function\nf:\t.cfi_startproc\n\tpush %r12\n\t.cfi_adjust_cfa_offset 8\n\t.cfi_offset %r12, -16\n\tpush %r13\n\t.cfi_adjust_cfa_offset 8\n\t.cfi_offset %r13, -24\n\txor %r12d, %r12d\n\txor %r13d, %r13d\n\tpop %r12\n\t.cfi_adjust_cfa_offset -8\n\t.cfi_restore %r12\n\tpop %r13\n\t.cfi_adjust_cfa_offset -8\n\t.cfi_restore %r13\n\tret\n\t.cfi_endproc\n\t.size f, . - f\n";
    let (same, said) = fixed(text, 1);
    assert_eq!(same, text);
    let stays = "CFI010 stays: the code does not preserve the register";
    assert_eq!(said.matches(stays).count(), 2, "{said}");
}

#[test]
fn code_assembled_more_than_once_is_not_edited() {
    let in_function = |body: &str| {
        format!(
            "\t.globl f\n\t.type f, @function\nf:\n\t.cfi_startproc\n{body}\tret\n\t.cfi_endproc\n\t.size f, . - f\n"
        )
    };
    let cases = [
        (
            in_function("\t.rept 2\n\tpush %rax\n\tpush %rax\n\t.endr\n\tadd $32, %rsp\n"),
            "f.S:7: CFI001 stays: the line is in a macro, or is repeated",
        ),
        (
            in_function("\tpush %rax; push %rax\n\tadd $16, %rsp\n"),
            "f.S:5: CFI001 stays: the line makes several instructions",
        ),
        (
            format!(
                "\t.macro save\n\tpush %rax\n\tpush %rbx\n\t.endm\n{}",
                in_function("\tsave\n\tadd $16, %rsp\n")
            ),
            "CFI001 stays: the line",
        ),
    ];
    for (text, expected) in cases {
        let (fixed, said) = fixed(&text, 1);
        let edited = fixed
            .lines()
            .filter(|line| line.contains(".cfi_") && !text.contains(line));
        for line in edited {
            let before = fixed.split(line).next().unwrap();
            let is_open = before.contains(".rept") != before.contains(".endr")
                || before.contains(".macro") != before.contains(".endm");
            assert!(!is_open, "{fixed}");
        }
        assert!(said.contains(expected), "{expected}: {said}");
    }
}

/// A register's slot is relative to the CFA: while that is wrong, the slot is, too.
#[test]
fn rules_relative_to_a_wrong_cfa_are_not_written() {
    let text = "\t.macro saves
\tsub $16, %rsp
\tmov %rbx, 8(%rsp)
\t.cfi_offset %rbx, -16
\tmov %r12, (%rsp)
\t.endm
\t.globl f
\t.type f, @function
f:
\t.cfi_startproc
\tsaves
\txor %r12d, %r12d
\tmov (%rsp), %r12
\tmov 8(%rsp), %rbx
\t.cfi_restore %rbx
\tadd $16, %rsp
\tret
\t.cfi_endproc
\t.size f, . - f
";
    let (fixed, said) = fixed(text, 1);
    assert_eq!(fixed, text, "{said}");
    assert!(said.contains("CFI001 stays: the line"), "{said}");
}

/// An offset that is wrong by a word is wrong everywhere.
#[test]
fn a_frame_that_is_a_word_off_is_mended() {
    let text = "\t.globl f
\t.type f, @function
f:
\t.cfi_startproc
\tpush %rbx
\t.cfi_def_cfa_offset 24
\t.cfi_offset %rbx, -24
\tmov %edi, %ebx
\tcall g
\tmov %ebx, %eax
\tpop %rbx
\t.cfi_def_cfa_offset 8
\t.cfi_restore %rbx
\tret
\t.cfi_endproc
\t.size f, . - f
";
    let (fixed, said) = fixed(text, 0);
    assert_eq!(fixed, text.replace("24", "16"), "{said}");
}

/// Where paths join at different heights, the message names a register at a constant offset from
/// the CFA.
#[test]
fn a_loop_that_pushes_has_its_frame_pointer_named() {
    let text = "\t.globl f
\t.type f, @function
f:
\t.cfi_startproc
\tpush %rbp
\t.cfi_def_cfa_offset 16
\t.cfi_offset %rbp, -16
\tmov %rsp, %rbp
1:\tpush %rax
\tdec %edi
\tjnz 1b
\tleave
\t.cfi_def_cfa %rsp, 8
\t.cfi_restore %rbp
\tret
\t.cfi_endproc
\t.size f, . - f
";
    let (fixed, said) = fixed(text, 0);
    let line = "\tmov %rsp, %rbp\n";
    let named = [
        "\t.cfi_def_cfa %rbp, 16\n",
        "\t.cfi_def_cfa_register %rbp\n",
    ];
    let expected = named.map(|named| text.replace(line, &format!("{line}{named}")));
    assert!(expected.contains(&fixed), "{fixed}{said}");
}

/// Code that control reaches from other functions.
#[test]
fn a_shared_body_is_mended() {
    let text = "\t.globl f
\t.type f, @function
f:
\t.cfi_startproc
\tpush %rbx
\t.cfi_def_cfa_offset 16
\t.cfi_offset %rbx, -16
\txor %ebx, %ebx
\tjmp body
\t.cfi_endproc
\t.size f, . - f
\t.type body, @function
body:
\t.cfi_startproc
\t.cfi_offset %rbx, -16
\tlea (%rdi,%rbx), %rax
\tpop %rbx
\t.cfi_def_cfa_offset 8
\t.cfi_restore %rbx
\tret
\t.cfi_endproc
\t.size body, . - body
";
    let (fixed, said) = fixed(text, 0);
    let line = "\t.cfi_adjust_cfa_offset 8\n";
    let expected = text.replace("-16\n\tlea", &format!("-16\n{line}\tlea"));
    assert_eq!(fixed, expected, "{said}");
}

#[test]
fn included_files_are_not_edited() {
    let folder = tempfile::tempdir().unwrap();
    let body = "\t.cfi_startproc\n\tpush %rax\n\tpop %rax\n\tret\n\t.cfi_endproc\n";
    let text = "\t.globl f\nf:\n\t.include \"body.inc\"\n";
    fs::write(folder.path().join("body.inc"), body).unwrap();
    fs::write(folder.path().join("f.s"), text).unwrap();
    let (status, _, said) = check(folder.path(), &["--fix", "f.s"]);
    assert_eq!(status, 1, "{said}");
    assert!(
        said.contains("f.s: CFI001 stays: no line of the file makes this instruction"),
        "{said}"
    );
    assert_eq!(fs::read_to_string(folder.path().join("f.s")).unwrap(), text);
    assert_eq!(
        fs::read_to_string(folder.path().join("body.inc")).unwrap(),
        body
    );
}

#[test]
fn only_assembly_source_and_elf_files_are_mended() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("f.c"), "int x;\n").unwrap();
    for (option, why) in [
        ("--fix", "f.c: not an ELF file: it starts with int x;"),
        (
            "--diff",
            "f.c: --diff shows edits of assembly source (.s, .S) only",
        ),
    ] {
        let (status, _, said) = check(folder.path(), &[option, "f.c"]);
        assert_eq!(status, 2, "{said}");
        assert!(said.contains(why), "{said}");
    }
}

/// The text with the proposed directives.
fn by_hand(text: &str, findings: &Value) -> String {
    // For each line: the lines after it, its replacement, and whether it is kept.
    let mut lines: Vec<(Vec<String>, Vec<String>)> = vec![(Vec::new(), Vec::new())];
    lines.extend(text.lines().map(|line| (vec![line.to_owned()], Vec::new())));
    let mut done = BTreeSet::new();
    for finding in findings.as_array().unwrap() {
        for edit in finding["edits"].as_array().unwrap() {
            if !done.insert(edit.to_string()) {
                continue;
            }
            let line = |name: &str| usize::try_from(edit[name].as_u64().unwrap()).unwrap();
            let written = |name: &str| format!("\t{}", edit[name].as_str().unwrap());
            match edit["do"].as_str().unwrap() {
                "write" => lines[line("after_line")].1.push(written("directive")),
                "remove" => lines[line("line")].0.clear(),
                "replace" => lines[line("line")].0 = vec![written("by")],
                "move" => {
                    lines[line("line")].0.clear();
                    lines[line("after_line")].1.push(written("directive"));
                }
                other => panic!("{other}"),
            }
        }
    }
    let lines = lines.into_iter().flat_map(|(own, behind)| [own, behind]);
    lines.flatten().map(|line| line + "\n").collect()
}

/// Following the proposals by hand gives the output of `--fix`.
#[test]
fn fixes_write_what_findings_suggest() {
    let remember =
        "write after line 10: .cfi_remember_state; write after line 14: .cfi_restore_state";
    let early_return = |undone: &str| {
        format!(
            "\tpush\t%rbx\n\t.cfi_adjust_cfa_offset\t8\n\t.cfi_offset\t%rbx, -16\n\tmov\t%edi, %ebx\n\ttest\t%edi, %edi\n\tje\t1f\n\
            \tpop\t%rbx\n{undone}\tret\n1:\tcall\tg\n\tpop\t%rbx\n{undone}\tret\n"
        )
    };
    let frame = "\tpush\t%rbp\n\t.cfi_def_cfa_offset\t16\n\t.cfi_offset\t%rbp, -16\n";
    let cases = [
        (
            early_return("\t.cfi_adjust_cfa_offset\t-8\n\t.cfi_restore\t%rbx\n"),
            remember,
        ),
        // Not only for the last instruction's effect.
        (
            "\tpush\t%rbx\n\t.cfi_def_cfa_offset\t16\n\tsub\t$16, %rsp\n\t.cfi_def_cfa_offset\t32\n\ttest\t%edi, %edi\n\tje\t1f\n\
            \tadd\t$16, %rsp\n\t.cfi_def_cfa_offset\t16\n\tpop\t%rbx\n\t.cfi_def_cfa_offset\t8\n\tret\n1:\tcall\tg\n\
            \tadd\t$16, %rsp\n\t.cfi_def_cfa_offset\t16\n\tpop\t%rbx\n\t.cfi_def_cfa_offset\t8\n\tret\n"
                .to_owned(),
            "write after line 10: .cfi_remember_state; write after line 15: .cfi_restore_state",
        ),
        // Too late, and too early.
        (
            "\tpush\t%rbx\n\tmov\t%edi, %eax\n\t.cfi_adjust_cfa_offset 8\n\tcall\tg\n\tpop\t%rbx\n\t.cfi_adjust_cfa_offset -8\n\tret\n"
                .to_owned(),
            "move line 7 after line 5: .cfi_adjust_cfa_offset 8",
        ),
        (
            format!(
                "{frame}\t.cfi_def_cfa_register %rbp\n\tmov\t%rsp, %rbp\n\tcall\tg\n\tpop\t%rbp\n\t.cfi_restore %rbp\n\t.cfi_def_cfa %rsp, 8\n\tret\n"
            ),
            "move line 8 after line 9: .cfi_def_cfa_register %rbp",
        ),
        (
            format!(
                "{frame}\tmov\t%rdi, %rbp\n\tcall\tg\n\t.cfi_restore %rbp\n\tpop\t%rbp\n\t.cfi_def_cfa_offset 8\n\tret\n"
            ),
            "move line 10 after line 11: .cfi_restore %rbp",
        ),
        // For i386.
        (
            format!(
                "{}\tmov\t%rsp, %rbp\n\t.cfi_def_cfa_register 5\n\tcall\tg\n\tpop\t%rbp\n\t.cfi_restore 5\n\t.cfi_def_cfa 4, 8\n\tret\n",
                frame.replace("%rbp, -16", "5, -16")
            ),
            "write in line 9: .cfi_def_cfa_register %rbp, in place of .cfi_def_cfa_register 5",
        ),
        // A wrong number, and a superfluous directive.
        (
            "\tsub\t$24, %rsp\n\t.cfi_adjust_cfa_offset 16\n\tcall\tg\n\tadd\t$24, %rsp\n\t.cfi_def_cfa_offset 8\n\tret\n".to_owned(),
            "write in line 6: .cfi_adjust_cfa_offset 24, in place of .cfi_adjust_cfa_offset 16",
        ),
        (
            "\tsub\t$24, %rsp\n\t.cfi_adjust_cfa_offset 24\n\t.cfi_adjust_cfa_offset 24\n\tcall\tg\n\tadd\t$24, %rsp\n\t.cfi_def_cfa_offset 8\n\tret\n"
                .to_owned(),
            "remove line 7: .cfi_adjust_cfa_offset 24",
        ),
    ];
    for (body, asked) in cases {
        let text = format!(
            "\t.globl\tf\n\t.type\tf, @function\nf:\n\t.cfi_startproc\n{body}\t.cfi_endproc\n\t.size\tf, . - f\n"
        );
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("f.S"), &text).unwrap();
        let (_, out, _) = check(folder.path(), &["f.S"]);
        assert!(out.contains(asked), "`{asked}` is not in:\n{out}");
        let (_, out, _) = check(folder.path(), &["--format", "json", "f.S"]);
        let report: Value = serde_json::from_str(&out).unwrap();
        let mended = by_hand(&text, &report["files"][0]["findings"]);
        assert_eq!(mended, fixed(&text, 0).0);
    }
}
