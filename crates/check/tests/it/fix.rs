//! Fixes: the wrong tables of the corpus are mended, in assembly source and in object files. Some
//! of what a check takes for right then is stepped by gdb, whose unwinder must find by it what is
//! true: all with `cargo xtask test --thorough`.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use unspool_assembly::annotate;
use unspool_check::{
    FileReport, FixOptions, FixResult, LocatedFinding, RowRewrite, RowRewriteError, Severity,
    SourceTexts, fix_source, rewrite_rows,
};
use unspool_elf::{DebugFiles, ElfFile};
use unspool_testing::{Error, Finish as _, Folder, sample, tool};
use xtask::corpus::pair::{self, Pair};
use xtask::corpus::program::{PairProgram, Variant};
use xtask::corpus::proof;

use crate::common::{
    GccAssembler, advised_report, elf_report, fixed, in_function, lines_of, source_report,
};

/// Findings, without line numbers.
fn keys(report: &FileReport) -> BTreeSet<String> {
    let key = |located: &LocatedFinding| {
        let finding = &located.finding;
        format!(
            "{} {:?} {}",
            finding.code, located.function, finding.subject
        )
    };
    report.findings.iter().map(key).collect()
}

#[derive(Debug, PartialEq, Eq)]
enum FixOutcome {
    /// There was no finding to start with.
    NotFound,
    /// It is right now, by a check, and by single steps where these were made.
    Right,
    /// A check accepts it, but it is wrong.
    Wrong(String),
    /// A finding remains.
    Left(String),
}

fn outcome(pair: &Pair, is_stepped: bool, folder: &Folder) -> FixOutcome {
    let name = format!("{}.s", pair.name);
    let text = pair::plain(&fs::read_to_string(&pair.path).unwrap(), Variant::Wrong);
    let own = Folder::below(folder);
    let before = keys(&source_report(&own, &name, &text));
    let result = fixed(&name, &text);
    let fixed_text = result.source.to_string();
    assert_eq!(
        patched(&own, &name, &text, &result.source.diff(&name)),
        fixed_text,
        "{name}: the difference shows something else"
    );

    let code = |text: &str| -> Vec<String> {
        let lines = text
            .lines()
            .filter(|line| !line.trim_start().starts_with(".cfi_"));
        lines.map(str::to_owned).collect()
    };
    assert_eq!(
        code(&fixed_text),
        code(&text),
        "{name}: not only directives were changed"
    );
    let report = source_report(&own, &name, &fixed_text);
    let after = keys(&report);
    assert!(
        after.is_subset(&before),
        "{name}: {after:?} were not found before: {before:?}"
    );
    let again = fixed(&name, &fixed_text);
    assert!(!again.source.is_changed(), "{name}: not idempotent");
    if report.has_findings() {
        return FixOutcome::Left(lines_of(&report));
    }
    if before.is_empty() {
        return FixOutcome::NotFound;
    }
    if !is_stepped {
        return FixOutcome::Right;
    }
    let build = |path: &Path, variant| {
        let pair = Pair {
            path: path.to_owned(),
            ..pair.clone()
        };
        PairProgram::build(&pair, variant, &own, &["/usr/bin/as"]).unwrap()
    };
    let wrong = build(&pair.path, Variant::Wrong);
    let ours = build(&own.join(&name), Variant::Right);
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
fn patched(folder: &Folder, name: &str, text: &str, diff: &str) -> String {
    let copy = folder.write(&format!("{name}.patched"), text);
    let patch = folder.write(&format!("{name}.diff"), diff);
    tool("patch")
        .args(["--fuzz=0", "--quiet"])
        .args([&copy, &patch])
        .succeed();
    fs::read_to_string(&copy).unwrap()
}

/// What became of all pairs of the corpus, of which so many must be right and none wrong. `outcome`
/// is passed whether to step one.
fn mends_the_corpus(outcome: impl Fn(&Pair, bool, &Folder) -> FixOutcome + Sync, least: usize) {
    let folder = Folder::new();
    let pairs = pair::all().unwrap();
    let stepped: HashSet<&str> = sample(&pairs, 4).map(|pair| &*pair.name).collect();
    let outcomes = pair::outcomes(&pairs, |pair| {
        outcome(pair, stepped.contains(&*pair.name), &folder)
    });
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
    let mend = |object: &Path| -> Result<(), Error> {
        let file = Arc::new(ElfFile::from_bytes(object, fs::read(object)?)?);
        let mut sources = SourceTexts::new(|_| None);
        match rewrite_rows(&file, &DebugFiles::default(), &mut sources) {
            Ok(RowRewrite { elf: Some(elf), .. }) => Ok(fs::write(object, elf)?),
            // Then the finding remains.
            Ok(_) | Err(RowRewriteError::OtherRows { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    };
    let outcome = |pair: &Pair, is_stepped, folder: &Folder| {
        let build = |change: &dyn Fn(&Path) -> Result<(), Error>| {
            let assembler = ["/usr/bin/as"];
            PairProgram::build_with(pair, Variant::Wrong, folder, &assembler, change).unwrap()
        };
        let is_clean = |program: &PairProgram| {
            let object = program.path.with_extension("o");
            !elf_report(&object).has_findings()
        };
        let wrong = build(&|_| Ok(()));
        if is_clean(&wrong) {
            return FixOutcome::NotFound;
        }
        let ours = build(&mend);
        assert_eq!(wrong.code, ours.code, "{}", pair.name);
        if !is_clean(&ours) {
            return FixOutcome::Left(pair.wrong.clone());
        }
        if is_stepped {
            stepped(pair, &ours)
        } else {
            FixOutcome::Right
        }
    };
    mends_the_corpus(outcome, 104);
}

/// A text as `f.S`, of which no finding remains once it is fixed.
fn mended(text: &str) -> String {
    let result = fixed("f.S", text);
    assert_eq!(stays(&result), "", "{}", result.source);
    assert!(result.fixed > 0);
    result.source.to_string()
}

/// What remains, a line each.
fn stays(result: &FixResult) -> String {
    let refused = result.refused.iter();
    let refused = refused.map(|refused| match refused.line {
        Some(line) => format!("f.S:{line}: {refused}\n"),
        None => format!("f.S: {refused}\n"),
    });
    refused.collect()
}

/// The text before the edits or after them: `-` begins a line of the one, `+` a line of the other.
fn side(marked: &str, mark: char) -> String {
    let lines = marked.split_inclusive('\n');
    let lines = lines.filter_map(|line| match line.strip_prefix(['-', '+']) {
        Some(rest) => line.starts_with(mark).then_some(rest),
        None => Some(line),
    });
    lines.collect()
}

/// Asserts that fixing a text makes exactly the marked edits.
fn fixes(marked: &str) {
    assert_eq!(mended(&side(marked, '-')), side(marked, '+'));
}

#[test]
fn directives_stand_where_people_write_them() {
    let text = "\
#define FRAME 24
\t.globl\tf
f:
\t.cfi_startproc\t\t# the author's words stay
    sub $FRAME, %rsp        // the frame
+    .cfi_adjust_cfa_offset 24
#ifdef __x86_64__
/* a comment */
1:  call g
#endif
    add $FRAME, %rsp
+    .cfi_adjust_cfa_offset -24
    ret
\t.cfi_endproc";
    fixes(text);
}

/// A regression: code excluded by `#ifdef` was taken for preceding code, and named as the location.
#[test]
fn directives_do_not_stand_in_what_is_left_out() {
    let body = "\
\tpush %rbx
\t.cfi_adjust_cfa_offset 8
\txor %ebx, %ebx
+\t.cfi_offset %rbx, -16
#ifdef FOO
\tpush %rax
\tpop %rax
#endif
\tpop %rbx
\t.cfi_adjust_cfa_offset -8
\tret
";
    let text = in_function(body);
    fixes(&text);
    let found = lines_of(&advised_report("f.S", &side(&text, '-')));
    let advice = "; write after line 7: .cfi_offset %rbx, -16";
    assert!(found.contains(advice), "{found}");
}

/// A register pushed under a condition may not be pushed: an offset from the CFA would then differ.
#[test]
fn distances_are_right_without_what_may_be_left_out() {
    let body = "\
#ifndef FOO
\tpush %rax
\t.cfi_adjust_cfa_offset 8
#endif
\tpush %rbx
\t.cfi_adjust_cfa_offset 8
+\t.cfi_rel_offset %rbx, 0
\txor %ebx, %ebx
\tpop %rbx
\t.cfi_adjust_cfa_offset -8
+\t.cfi_restore %rbx
#ifndef FOO
\tpop %rax
\t.cfi_adjust_cfa_offset -8
#endif
\tret
";
    let text = in_function(body);
    fixes(&text);
    let other = format!("#define FOO\n{}", side(&text, '+'));
    assert_eq!(lines_of(&source_report(&Folder::new(), "f.S", &other)), "");
}

#[test]
fn a_state_remembered_in_a_condition_is_restored_there() {
    let body = "\
\ttest %edi, %edi
\tjz 1f
#ifndef FOO
\tpush %rax
+\t.cfi_remember_state
\t.cfi_adjust_cfa_offset 8
\tjmp g
+\t.cfi_restore_state
#endif
1:\tret
";
    fixes(&in_function(body));
}

#[test]
fn assembly_without_any_directive_gets_all() {
    let text = "\
\t.globl f
\t.type f, @function
f:
+\t.cfi_startproc
\tpush %rbx
+\t.cfi_adjust_cfa_offset 8
+\t.cfi_offset %rbx, -16
\tcall g
\tpop %rbx
+\t.cfi_adjust_cfa_offset -8
+\t.cfi_restore %rbx
\tret
+\t.cfi_endproc
";
    fixes(text);
}

/// An entry that control runs out of is extended, instead of two findings with one cause.
#[test]
fn entries_that_end_too_early_end_where_the_function_does() {
    let text = "\t.globl f\n\t.type f, @function\nf:\t.cfi_startproc\n\tpush %rax\n\t.cfi_adjust_cfa_offset 8\n\tpop %rax\n\t.cfi_adjust_cfa_offset -8\n\t.cfi_endproc\n\tret\n\t.size f, . - f\n";
    let right = text.replace("\t.cfi_endproc\n\tret\n", "\tret\n\t.cfi_endproc\n");
    assert_eq!(mended(text), right);
    let report = advised_report("f.s", text);
    let found = lines_of(&report);
    assert!(found.starts_with("6: refuted CFI006"), "{found}");
    let advice = "move line 8 after line 9: .cfi_endproc";
    assert!(found.contains(advice), "{found}");
    assert!(report.severities().eq([Severity::Refuted]), "{found}");
}

/// An offset that is wrong by a word is wrong everywhere.
#[test]
fn a_frame_that_is_a_word_off_is_mended() {
    let body = "\
\tpush %rbx
-\t.cfi_def_cfa_offset 24
-\t.cfi_offset %rbx, -24
+\t.cfi_def_cfa_offset 16
+\t.cfi_offset %rbx, -16
\tmov %edi, %ebx
\tcall g
\tmov %ebx, %eax
\tpop %rbx
\t.cfi_def_cfa_offset 8
\t.cfi_restore %rbx
\tret
";
    fixes(&in_function(body));
}

/// Where paths join at different heights, the directive names a register at a constant offset from
/// the CFA.
#[test]
fn a_loop_that_pushes_has_its_frame_pointer_named() {
    let body = "\
\tpush %rbp
\t.cfi_def_cfa_offset 16
\t.cfi_offset %rbp, -16
\tmov %rsp, %rbp
+\t.cfi_def_cfa %rbp, 16
1:\tpush %rax
\tdec %edi
\tjnz 1b
\tleave
\t.cfi_def_cfa %rsp, 8
\t.cfi_restore %rbp
\tret
";
    fixes(&in_function(body));
}

/// Code that control reaches from other functions.
#[test]
fn a_shared_body_is_mended() {
    let text = "\
\t.globl f
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
+\t.cfi_adjust_cfa_offset 8
\tlea (%rdi,%rbx), %rax
\tpop %rbx
\t.cfi_def_cfa_offset 8
\t.cfi_restore %rbx
\tret
\t.cfi_endproc
\t.size body, . - body
";
    fixes(text);
}

/// No directive can fix pops in the wrong order.
#[test]
fn registers_that_the_code_loses_are_not_hidden() {
    let text = "\t.globl f\n\t.type f, @function\nf:\t.cfi_startproc\n\tpush %r12\n\t.cfi_adjust_cfa_offset 8\n\t.cfi_offset %r12, -16\n\tpush %r13\n\t.cfi_adjust_cfa_offset 8\n\t.cfi_offset %r13, -24\n\txor %r12d, %r12d\n\txor %r13d, %r13d\n\tpop %r12\n\t.cfi_adjust_cfa_offset -8\n\t.cfi_restore %r12\n\tpop %r13\n\t.cfi_adjust_cfa_offset -8\n\t.cfi_restore %r13\n\tret\n\t.cfi_endproc\n\t.size f, . - f\n";
    let result = fixed("f.S", text);
    assert!(!result.source.is_changed());
    let lost = "CFI010 stays: the code does not preserve the register";
    let stays = stays(&result);
    assert_eq!(stays.matches(lost).count(), 2, "{stays}");
}

#[test]
fn code_assembled_more_than_once_is_not_edited() {
    let cases = [
        (
            in_function("\t.rept 2\n\tpush %rax\n\tpush %rax\n\t.endr\n\tadd $32, %rsp\n\tret\n"),
            "f.S:7: CFI001 stays: the line is in a macro, or is repeated",
        ),
        (
            in_function("\tpush %rax; push %rax\n\tadd $16, %rsp\n\tret\n"),
            "f.S:5: CFI001 stays: the line makes several instructions",
        ),
        (
            format!(
                "\t.macro save\n\tpush %rax\n\tpush %rbx\n\t.endm\n{}",
                in_function("\tsave\n\tadd $16, %rsp\n\tret\n")
            ),
            "CFI001 stays: the line",
        ),
    ];
    for (text, expected) in cases {
        let result = fixed("f.S", &text);
        let (fixed, stays) = (result.source.to_string(), stays(&result));
        let edited = fixed
            .lines()
            .filter(|line| line.contains(".cfi_") && !text.contains(line));
        for line in edited {
            let before = fixed.split(line).next().unwrap();
            let is_open = before.contains(".rept") != before.contains(".endr")
                || before.contains(".macro") != before.contains(".endm");
            assert!(!is_open, "{fixed}");
        }
        assert!(stays.contains(expected), "{expected}: {stays}");
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
    let result = fixed("f.S", text);
    assert!(!result.source.is_changed());
    let stays = stays(&result);
    assert!(stays.contains("CFI001 stays: the line"), "{stays}");
}

#[test]
fn included_files_are_not_edited() {
    let folder = Folder::new();
    let body = "\t.cfi_startproc\n\tpush %rax\n\tpop %rax\n\tret\n\t.cfi_endproc\n";
    let text = "\t.globl f\nf:\n\t.include \"body.inc\"\n";
    folder.write("body.inc", body);
    let options = FixOptions {
        minimum_severity: Severity::Unproven,
        max_drafts: usize::MAX,
    };
    let result = fix_source(&folder.join("f.S"), text, options, &GccAssembler(&[])).unwrap();
    assert!(!result.source.is_changed());
    let stays = stays(&result);
    assert!(
        stays.contains("f.S: CFI001 stays: no line of the file makes this instruction"),
        "{stays}"
    );
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
            match edit["action"].as_str().unwrap() {
                "insert" => lines[line("after_line")].1.push(written("directive")),
                "remove" => lines[line("line")].0.clear(),
                "replace" => lines[line("line")].0 = vec![written("replacement")],
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
        // The other directive counts from the wrong one.
        (
            "\tsub\t$24, %rsp\n\t.cfi_adjust_cfa_offset 16\n\tcall\tg\n\tadd\t$24, %rsp\n\t.cfi_adjust_cfa_offset -16\n\tret\n".to_owned(),
            "write in line 6: .cfi_adjust_cfa_offset 24, in place of .cfi_adjust_cfa_offset 16; write in line 9: .cfi_adjust_cfa_offset -24, in place of .cfi_adjust_cfa_offset -16",
        ),
    ];
    for (body, asked) in cases {
        let text = in_function(&body);
        let report = advised_report("f.S", &text);
        let found = lines_of(&report);
        assert!(found.contains(asked), "`{asked}` is not in:\n{found}");
        let document = serde_json::to_value(&report).unwrap();
        assert_eq!(by_hand(&text, &document["findings"]), mended(&text));
    }
}

/// A regression: `#ifdef` was taken for a comment, and `.cfi_startproc` put after it.
#[test]
fn directives_stand_outside_of_conditions_that_what_they_are_of_is_not_in() {
    let text = "\
\t.globl f
\t.type f, @function
f:
#ifdef FOO
\tpush %r12
#endif
\tpush %rbx
\ttest %edi, %edi
#ifdef FOO
\tjz 1f
\tpop %rbx
\tpop %r12
\tret
1:
#endif
\tcall g
\tpop %rbx
#ifdef FOO
\tpop %r12
\tret
#else
\tret
#endif
\t.size f, . - f
";
    let annotated = |options: &'static [&'static str]| {
        let annotated = annotate(Path::new("f.S"), text, &GccAssembler(options)).unwrap();
        assert!(annotated.plan.refusals.is_empty() && annotated.proof.is_ok());
        annotated.text
    };
    let (without, with) = (annotated(&[]), annotated(&["-DFOO"]));
    for written in [&without, &with] {
        assert!(
            written.contains("f:\n\t.cfi_startproc\n#ifdef FOO\n"),
            "{written}"
        );
        assert!(
            written.contains("#endif\n\t.cfi_endproc\n\t.size"),
            "{written}"
        );
    }
    // The offset of the register differs if %r12 is not pushed.
    let expected = "\
f:
\t.cfi_startproc
#ifdef FOO
\tpush %r12
\t.cfi_adjust_cfa_offset 8
\t.cfi_offset %r12, -16
#endif
\tpush %rbx
\t.cfi_adjust_cfa_offset 8
\t.cfi_rel_offset %rbx, 0
\ttest %edi, %edi
#ifdef FOO
\tjz 1f
\t.cfi_remember_state
\tpop %rbx
";
    assert!(
        with.contains(expected) || with.contains(&expected.replace("\t.cfi_remember_state\n", "")),
        "{with}"
    );
    // So the table is also right without it.
    for define in ["", "#define FOO\n"] {
        let report = source_report(&Folder::new(), "f.S", &format!("{define}{with}"));
        assert_eq!(lines_of(&report), "");
    }
}
