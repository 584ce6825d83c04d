//! What is reported of files: severities, messages, and places.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use unspool_check::{
    CheckOptions, FileReport, FindingCode, LocatedFinding, Severity, Strictness, SubjectError,
    WorkflowCommands,
};
use unspool_elf::{DebugFiles, ElfFile};
use unspool_rows::Vaddr;
use unspool_testing::Folder;

use crate::common::{
    advised_report, elf_report, in_function, lines_of, source_report, suppressor, wrong,
};

/// The report of a text named `f.s`.
fn reported(text: &str) -> FileReport {
    source_report(&Folder::new(), "f.s", text)
}

/// The findings of a function with this body, with what a fix would do.
fn printed(body: &str) -> String {
    lines_of(&advised_report("f.s", &in_function(body)))
}

#[test]
fn assumptions_on_indexed_stores_are_counted() {
    let body = "\tpush %rbx\n\t.cfi_adjust_cfa_offset 8\n\t.cfi_rel_offset rbx, 0\n\tmov %edi, -64(%rsp,%rcx,4)\n\tpop %rbx\n\t.cfi_adjust_cfa_offset -8\n\t.cfi_restore rbx\n\tret\n";
    let report = reported(&in_function(body));
    assert_eq!(report.totals.assuming_bounds, 3);
    assert_eq!(report.functions_assuming_bounds, [Vaddr(0)]);
    assert!(!report.has_findings());
    // The number is constant in the code.
    let known = body.replace("mov %edi", "mov $2, %ecx\n\tmov %edi");
    assert_eq!(reported(&in_function(&known)).totals.assuming_bounds, 0);
}

/// Thousands of wrong rows in one entry: the addresses of all are with each finding, but not a
/// copy, and JSON has the first ones.
#[test]
fn findings_of_one_entry_share_their_set() {
    const ROWS: usize = 3_000;
    let row = |number: usize| format!("\t.cfi_def_cfa_offset {}\n\tnop\n", 16 + 8 * number);
    let rows: String = (0..ROWS).map(row).collect();
    let report = reported(&in_function(&format!(
        "\tinc %eax\n{rows}\t.cfi_def_cfa_offset 8\n\tret\n"
    )));
    assert_eq!(report.findings.len(), ROWS);
    for located in &report.findings {
        assert_eq!(located.fix_set.len(), ROWS);
    }
    let text = serde_json::to_string(&report).unwrap();
    assert!(text.len() < 4_096 * ROWS, "{} bytes", text.len());
}

#[test]
fn unproven_rows_are_reported_for_assembly_and_on_request() {
    // It is unknown whether the callee restores the stack.
    let folder = Folder::new();
    let text = in_function("\tmov\t(%rdi), %rsp\n\tcall\tg\n\tret\n");
    let report = source_report(&folder, "f.s", &text);
    assert!(lines_of(&report).contains("unproven CFI002"));
    let file = folder.join("assembled.o");
    let file = Arc::new(ElfFile::open(&file).unwrap());
    let lenient = CheckOptions {
        strictness: Strictness::Lenient,
        ..CheckOptions::default()
    };
    let report = FileReport::from_assembled(&file, &lenient, &mut suppressor()).unwrap();
    assert!(report.findings.is_empty() && report.below_severity > 0);
    assert!(!elf_report(Path::new("/bin/true")).has_findings());
}

#[test]
fn inline_data_is_not_unreachable_code() {
    let body = "\tmovdqu\t1f(%rip), %xmm0\n\tret\n\t.balign\t8\n1:\t.quad\t0x1234567890, 4\n2:\tmov\t$1, %eax\n\tret\n";
    let report = reported(&in_function(body));
    let [finding] = report.findings.as_slice() else {
        panic!("{report:?}");
    };
    assert_eq!(finding.finding.code, FindingCode::Unreached);
    // Not line 8.
    assert_eq!(finding.source.as_ref().map(|(_, line)| *line), Some(9));
    let body = body.replace("2:\tmov\t$1, %eax\n\tret\n", "");
    assert!(!reported(&in_function(&body)).has_findings());
}

#[test]
fn jumps_whose_targets_are_computed_lead_to_code_that_nothing_else_leads_to() {
    let body = "\
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
";
    let check = |body: &str| lines_of(&reported(&in_function(body)));
    assert_eq!(check(body), "");
    // Never refuted: it is a guess.
    let found = check(&body.replace("\t.cfi_restore_state\n", ""));
    assert!(found.contains("18: unproven CFI001"), "{found}");
    // The jump may lead past the push.
    let found = check(&body.replace("1:\tlea", "1:\tpush\t%rax\n\tlea"));
    assert!(found.contains("12: unproven CFI014"), "{found}");
}

/// Builds a program of a C file and `f.s` in a folder.
fn link(folder: &Folder, main: &str, text: &str) {
    folder.write("main.c", main);
    folder.write("f.s", text);
    folder.tool("gcc", "-g -O1 -c main.c f.s");
    folder.tool("gcc", "-o program main.o f.o");
}

/// Assembly in a compiled program is checked as if it were alone: unproven rows are reported.
#[test]
fn linked_assembly_is_checked_as_hand_written() {
    let folder = Folder::new();
    let text = in_function("\tmov (%rdi), %rsp\n\tcall *%rsi\n\tret\n");
    let main = "void f(void *); int main(int n, char **v) { f(v); return n; }\n";
    link(&folder, main, &text);
    let alone = lines_of(&source_report(&folder, "f.s", &text));
    let linked = lines_of(&elf_report(&folder.join("program")));
    for found in [alone, linked] {
        assert!(found.contains("6: unproven CFI002"), "{found}");
    }
}

/// The author of a function counts, not the author of most of the file.
#[test]
fn missing_entries_and_lost_registers_in_linked_assembly_are_reported() {
    let folder = Folder::new();
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
    let main = "long none(long), lost(long), short_(void) __asm__(\"short\"); int main(void) { return none(1) + lost(2) + short_(); }\n";
    link(&folder, main, &text.concat());
    folder.tool("gcc", "-r -o both.o main.o f.o");
    let reports = [
        source_report(&folder, "f.s", &text.concat()),
        elf_report(&folder.join("program")),
        elf_report(&folder.join("both.o")),
    ];
    for report in reports {
        let found = lines_of(&report);
        for finding in [
            "4: refuted CFI005 this function has no entry in the unwind table, in none+0x0",
            "13: refuted CFI010 the caller's rbx is not preserved, though declared unchanged, in lost+0x3",
            "23: refuted CFI006 control continues where the entry ends, in short+0x2",
            "29: refuted CFI005 this function has no entry in the unwind table, in untyped+0x0",
        ] {
            assert!(found.contains(finding), "{finding}: {found}");
        }
        // An entry that is too short is reported once.
        assert_eq!(report.severities().count(), 4, "{found}");
    }
}

/// A walk continues past the end of the stack if the entry point looks like a function.
#[test]
fn entry_points_of_source_and_of_programs_say_that_they_are_outermost() {
    let folder = Folder::new();
    let text = "\t.globl _start\n_start:\n\t.cfi_startproc\n\tmov $60, %eax\n\tsyscall\n\tud2\n\t.cfi_endproc\n";
    let alone = source_report(&folder, "f.s", text);
    folder.tool("gcc", "-g -nostdlib -static -o program f.s");
    for report in [alone, elf_report(&folder.join("program"))] {
        let found = lines_of(&report);
        assert!(found.starts_with("4: refuted CFI009"), "{found}");
        let totals = report.totals;
        assert_eq!((totals.rows, totals.proven, totals.refuted), (1, 0, 1));
    }
    let right = text.replace("startproc\n", "startproc\n\t.cfi_undefined %rip\n");
    assert!(!reported(&right).has_findings());
}

/// In code without any table, functions lack entries; without code, there is nothing to check.
#[test]
fn objects_without_a_table_are_reported_with_a_remedy() {
    let folder = Folder::new();
    let text = "\t.globl f\nf:\tpush %rbx\n\tcall g\n\tpop %rbx\n\tret\n\t.globl table\ntable:\t.long 1, 2\n";
    let found = lines_of(&source_report(&folder, "f.s", text));
    assert!(found.contains("; unspool annotate /"), "{found}");
    folder.write("data.s", "\t.data\n\t.long 1\n");
    folder.write("c.c", "void f(void) {}\n");
    folder.tool("as", "-g -o f.o f.s");
    folder.tool("as", "-o no_lines.o f.s");
    folder.tool("as", "-o data.o data.s");
    folder.tool("gcc", "-fno-asynchronous-unwind-tables -c c.c");
    for (name, remedy) in [
        ("f.o", "f.s writes its entry"),
        ("no_lines.o", "no_lines.o --into OUT writes its entry"),
        ("c.o", "c.o --into OUT writes its entry"),
    ] {
        let report = elf_report(&folder.join(name));
        let found = lines_of(&report);
        assert!(found.contains("refuted CFI005"), "{found}");
        assert!(found.contains(remedy), "{found}");
        assert_eq!(report.severities().count(), 1, "{found}");
    }
    // Clean, as far as its own code goes.
    let bare = Arc::new(ElfFile::open(folder.join("f.o")).unwrap());
    let own = CheckOptions {
        own: Some("/elsewhere".into()),
        ..CheckOptions::default()
    };
    let report = FileReport::from_elf(&bare, &DebugFiles::default(), &own, &mut suppressor());
    assert_eq!(report.unwrap().severities().count(), 0);
    let data = Arc::new(ElfFile::open(folder.join("data.o")).unwrap());
    let none = FileReport::from_elf(
        &data,
        &DebugFiles::default(),
        &CheckOptions::default(),
        &mut suppressor(),
    );
    let error = none.unwrap_err();
    assert!(matches!(error, SubjectError::Source(_)), "{error}");
    assert!(
        error.to_string().contains("data.o: no unwind table"),
        "{error}"
    );
}

#[test]
fn expressions_are_printed_as_formulas() {
    // The CFA is [rsp+8]+16, and rbx at rsp+8.
    let out = printed(
        "\tpush\t%rbx\n\t.cfi_escape 0x0f, 0x05, 0x77, 0x08, 0x06, 0x23, 0x10\n\t.cfi_escape 0x10, 0x03, 0x02, 0x77, 0x08\n\
        \tmov\t%edi, %ebx\n\tcall\tg\n\tpop\t%rbx\n\t.cfi_def_cfa %rsp, 8\n\t.cfi_restore %rbx\n\tret\n",
    );
    for words in [
        "the CFA is rsp+16, and declared *(rsp+8)+16, in f+0x1",
        "declared *(rsp+8)+16  is rsp+16",
        "the caller's rbx is unchanged, and declared *(rsp+8), in f+0x1",
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
    let hint = "(register number 5 is rdi on x86-64; ebp has it on i386: %rbp may be meant)";
    for (number, register) in [("5", "%rbp"), ("%rbp", "5"), ("5", "5")] {
        let out = printed(&framed(number, register));
        let findings = out.lines().filter(|line| line.starts_with("10: ")).count();
        assert!(
            out.matches(hint).count() >= findings && findings > 0,
            "{out}"
        );
        let line = if number == "5" { 7 } else { 9 };
        assert!(out.contains(&format!("write in line {line}: ")), "{out}");
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
        assert!(out.contains("(calls do not preserve r10)"), "{out}");
        // Only the call causes a finding.
        let without = printed(&body.replace("call\tg", "push\t%rax"));
        assert!(!without.contains("calls do not"), "{without}");
    }
}

#[test]
fn a_return_address_that_is_declared_nowhere() {
    let out = printed("\t.cfi_same_value %rip\n\tret\n");
    assert!(
        out.contains("the return address is [cfa-8], and declared unchanged, "),
        "{out}"
    );
}

#[test]
fn reports_are_documents_for_programs() {
    let report = source_report(&Folder::new(), "f.s", &wrong());
    assert!(report.severities().eq([Severity::Refuted]));
    let document: Value = serde_json::to_value(&report).unwrap();
    assert_eq!(document["rows"]["refuted"], 1);
    let finding = &document["findings"][0];
    let expected = json!({
        "code": "CFI001",
        "line": 6,
        "function": "f",
        "offset": 1,
        "address": "0x1",
        "declared": "rsp+8",
        "computed": "rsp+16",
        "fix": ".cfi_adjust_cfa_offset 8",
        "fix_after_line": 5,
        "edits": null,
    });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(finding[name], *value, "{name}");
    }
    let commands = WorkflowCommands(&report).to_string();
    let (command, message) = commands.trim_end().rsplit_once("::").unwrap();
    assert!(command.starts_with("::error file="), "{commands}");
    assert!(
        command.ends_with("f.s,line=6,title=CFI001 cfa-offset"),
        "{commands}"
    );
    assert!(message.contains(".cfi_adjust_cfa_offset 8"), "{commands}");
}

/// objdump prints addresses from the start of each section.
#[test]
fn addresses_of_objects_are_those_of_sections() {
    let wrong = |name: &str| {
        format!(
            "\t.globl {name}\n{name}:\t.cfi_startproc\n\tpush %rdi\n\tpop %rdi\n\tret\n\t.cfi_endproc\n"
        )
    };
    let text = format!(
        "{}\t.section .text.other, \"ax\"\n{}",
        wrong("f"),
        wrong("g")
    );
    let folder = Folder::new();
    folder.write("f.s", text);
    folder.tool("as", "-o f.o f.s");
    let report = elf_report(&folder.join("f.o"));
    let places: Vec<String> = report
        .findings
        .iter()
        .map(LocatedFinding::address)
        .collect();
    assert_eq!(places, [".text+0x1", ".text.other+0x1"]);
    let remedies = report.findings.iter().map(LocatedFinding::remedy);
    let wanted = [
        "write before .text+0x1: .cfi_adjust_cfa_offset 8",
        "write before .text.other+0x1: .cfi_adjust_cfa_offset 8",
    ];
    assert_eq!(remedies.collect::<Vec<_>>(), wanted);
}
