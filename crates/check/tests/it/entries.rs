//! Code that is entered otherwise than by a call: its rows are right if they say how.

use unspool_check::{CheckReport, CodeOrigin, Finding, FindingCode, Severity};

use crate::common::{assembled, report, report_of};

/// A function with a body between `.cfi_startproc` and `.cfi_endproc`.
fn function(name: &str, body: &str) -> String {
    format!(
        "
        .globl {name}
        .type {name}, @function
{name}: .cfi_startproc
        {body}
        .cfi_endproc
        .size {name}, . - {name}
"
    )
}

/// Codes and severities of the findings, with their distances from a label.
fn found(report: &CheckReport, label: u64) -> Vec<(FindingCode, Severity, i64)> {
    let finding = |it: &Finding| {
        let distance = it.address.0.wrapping_sub(label).cast_signed();
        (it.code, it.severity, distance)
    };
    report.findings.iter().map(finding).collect()
}

/// A source without findings, all of whose rows are proven.
fn assert_proven(source: &str) {
    let (report, _) = report(source, "f");
    assert!(
        report.findings.is_empty(),
        "{source}: {:#?}",
        report.findings
    );
    assert_eq!(report.totals.proven, report.totals.rows, "{source}");
}

/// The row at a label is refuted for the CFA and the return address, and no row is proven that
/// follows from it.
fn assert_entry_refuted(source: &str, label: &str) {
    let (report, label) = report(source, label);
    let found = found(&report, label);
    let is_there = |code| found.contains(&(code, Severity::Refuted, 0));
    let is_cfa = is_there(FindingCode::CfaOffset) || is_there(FindingCode::CfaRegister);
    assert!(
        is_cfa && is_there(FindingCode::ReturnAddress),
        "{source}: {found:?}"
    );
}

/// A system call's entry, which saves the return address and jumps back. The processor leaves it in
/// `address`.
fn system_call(address: &str, resume: &str, rows: [&str; 3]) -> String {
    let [entry, saved, restored] = rows;
    function(
        "f",
        &format!(
            "{entry}
        push %{address}
        .cfi_adjust_cfa_offset 8
        {saved}
        push %r11
        .cfi_adjust_cfa_offset 8
        call handle
        pop %r11
        .cfi_adjust_cfa_offset -8
        pop %{address}
        .cfi_adjust_cfa_offset -8
        {restored}
        {resume}"
        ),
    )
}

/// Intel SDM, volume 2, "SYSCALL" and "SYSRET": `rcx` holds the return address, and `rsp` stays the
/// caller's.
#[test]
fn a_system_call_returns_to_a_register() {
    let rows = [
        ".cfi_def_cfa %rsp, 0\n .cfi_register %rip, %rcx",
        ".cfi_offset %rip, -8",
        ".cfi_register %rip, %rcx",
    ];
    for resume in ["sysretq", "sysretl"] {
        assert_proven(&system_call("rcx", resume, rows));
        assert_entry_refuted(&system_call("rcx", resume, [""; 3]), "f");
        // Another register.
        let other = ".cfi_def_cfa %rsp, 0\n .cfi_register %rip, %rdx";
        let wrong = system_call("rcx", resume, [other, rows[1], rows[2]]);
        let (report, f) = report(&wrong, "f");
        let expected = (FindingCode::ReturnAddress, Severity::Refuted, 0);
        assert!(
            found(&report, f).contains(&expected),
            "{:#?}",
            report.findings
        );
    }
    // "SYSEXIT": `rdx` holds the address, and `rcx` the stack pointer.
    let sysexit = |rows: &str| function("f", &format!("{rows}\n sti\n sysexit"));
    assert_proven(&sysexit(".cfi_def_cfa %rcx, 0\n .cfi_register %rip, %rdx"));
    assert_entry_refuted(&sysexit(""), "f");
}

/// A function that enters a program, and never returns, is called.
#[test]
fn a_function_may_resume_other_code() {
    assert_proven(&function(
        "f",
        "mov %rdi, %rcx\n mov $0x202, %r11d\n sysretq",
    ));
    let built = "push %rcx
        .cfi_adjust_cfa_offset 8
        push %rsi
        .cfi_adjust_cfa_offset 8
        push $0x202
        .cfi_adjust_cfa_offset 8
        push %rdx
        .cfi_adjust_cfa_offset 8
        push %rdi
        .cfi_adjust_cfa_offset 8
        iretq";
    assert_proven(&function("f", built));
    // It resumes its own code, whose rows are judged.
    let own = |adjust: &str| {
        let body = format!(
            "mov %rsp, %rax
        push $0x2b
        .cfi_adjust_cfa_offset 8
        push %rax
        .cfi_adjust_cfa_offset 8
        pushf
        .cfi_adjust_cfa_offset 8
        push $0x33
        .cfi_adjust_cfa_offset 8
        lea resumed(%rip), %rcx
        push %rcx
        .cfi_adjust_cfa_offset 8
        iretq
        {adjust}
resumed: ret"
        );
        function("f", &body)
    };
    assert_proven(&own(".cfi_def_cfa_offset 8"));
    let (report, resumed) = report(&own(""), "resumed");
    let expected = [(FindingCode::CfaOffset, Severity::Refuted, 0)];
    assert_eq!(found(&report, resumed), expected);
}

/// Intel SDM, volume 3, "64-Bit Mode Stack Frame": an interrupt pushes address, segment, flags, stack
/// pointer and segment; volume 2, "UIRET": address, flags and stack pointer.
#[test]
fn an_interrupt_returns_to_the_stack() {
    for (resume, frame, popped) in [("iretq", 40, 0), ("iretq", 40, 8), ("uiret", 24, 0)] {
        let body = |rows: &str| {
            let pop = if popped == 0 {
                ""
            } else {
                "add $8, %rsp\n .cfi_adjust_cfa_offset -8"
            };
            let body = format!(
                "{rows}\n push %rax\n .cfi_adjust_cfa_offset 8\n call handle\n pop %rax\n .cfi_adjust_cfa_offset -8\n {pop}"
            );
            function("f", &format!("{body}\n {resume}"))
        };
        for rows in ["", ".cfi_signal_frame"] {
            let (report, f) = report(&body(rows), "f");
            let expected = (FindingCode::CfaRegister, Severity::Refuted, 0);
            assert!(
                found(&report, f).contains(&expected),
                "{resume} {popped} {rows}: {:#?}",
                report.findings
            );
            assert_eq!(report.totals.proven, 0, "{resume} {popped} {rows}");
        }
        // The stack pointer is the last word, or the one before the segment.
        let sp = if frame == 40 { -16 } else { -8 };
        let rows = |size: i32| {
            body(&format!(
                ".cfi_signal_frame\n .cfi_def_cfa %rsp, {size}\n .cfi_offset %rsp, {sp}\n .cfi_offset %rip, -{frame}"
            ))
        };
        assert_proven(&rows(frame + popped));
        let (wrong, f) = report(&rows(frame + popped + 8), "f");
        assert!(
            found(&wrong, f).iter().any(|(.., at)| *at == 0),
            "{resume} {popped}: {:#?}",
            wrong.findings
        );
    }
}

/// The processor's saved state is nowhere in registers or on the stack.
#[test]
fn a_return_to_hidden_state_proves_no_row() {
    for body in [
        "rsm",
        "mov (%rdi), %rcx\n sysretq",
        "mov (%rdi), %rsp\n iretq",
    ] {
        let (report, _) = report(&function("f", body), "f");
        let worst = report.findings.iter().map(|it| it.severity).max();
        assert_eq!(worst, Some(Severity::Unproven), "{body}");
    }
}

/// A function that jumps to a helper with the return address in a register, and the helper.
fn linked(rows: [&str; 4]) -> String {
    let [entry, saved, restored, left] = rows;
    let caller = function(
        "f",
        "push %rbx
        .cfi_adjust_cfa_offset 8
        .cfi_offset %rbx, -16
        mov %rdi, %rbx
        lea back(%rip), %r11
        jmp helper
back:   mov %rbx, %rax
        pop %rbx
        .cfi_adjust_cfa_offset -8
        .cfi_restore %rbx
        ret",
    );
    let helper = format!(
        "{entry}
        sub $16, %rsp
        .cfi_adjust_cfa_offset 16
        mov %r11, 8(%rsp)
        {saved}
        mov %rbx, %rdi
        call leaf
        mov 8(%rsp), %r11
        {restored}
        add $16, %rsp
        .cfi_adjust_cfa_offset -16
        {left}
        jmp *%r11"
    );
    caller + &function("helper", &helper)
}

#[test]
fn a_helper_returns_to_a_link_register() {
    let right = [
        ".cfi_def_cfa %rsp, 0\n .cfi_register %rip, %r11",
        ".cfi_offset %rip, -8",
        ".cfi_register %rip, %r11",
        "",
    ];
    assert_proven(&linked(right));
    assert_entry_refuted(&linked([""; 4]), "helper");
    // The slot is a word lower.
    let (report, _) = report(
        &linked([right[0], ".cfi_offset %rip, -16", right[2], ""]),
        "f",
    );
    let codes: Vec<_> = report
        .findings
        .iter()
        .map(|it| (it.code, it.severity))
        .collect();
    assert_eq!(
        codes,
        [(FindingCode::ReturnAddress, Severity::Refuted)],
        "{:#?}",
        report.findings
    );
    // The caller is judged behind the jump, too.
    let wrong = linked(right).replace("back:   mov", "back: .cfi_adjust_cfa_offset 8\n mov");
    let (report, back) = crate::common::report(&wrong, "back");
    let expected = (FindingCode::CfaOffset, Severity::Refuted, 0);
    assert!(
        found(&report, back).contains(&expected),
        "{:#?}",
        report.findings
    );
}

/// Whether the register is a link register, or the target of a tail call, only the callers show.
#[test]
fn a_register_that_is_restored_for_a_jump_may_hold_the_return_address() {
    let restores = |register: &str| {
        let body = format!(
            "push %{register}
        .cfi_adjust_cfa_offset 8
        call trace
        pop %{register}
        .cfi_adjust_cfa_offset -8
        jmp *%{register}"
        );
        function("f", &body)
    };
    for register in ["r10", "r11", "rax"] {
        let (report, _) = report(&restores(register), "f");
        let found: Vec<_> = report
            .findings
            .iter()
            .map(|it| (it.code, it.severity))
            .collect();
        assert_eq!(
            found,
            [(FindingCode::ReturnAddress, Severity::Unproven)],
            "{register}"
        );
    }
    // Function pointers are arguments.
    for register in ["rdi", "rsi", "rcx"] {
        assert_proven(&restores(register));
    }
    // Thunks and dispatchers.
    for body in [
        "jmp *%rax",
        "jmp *%r11",
        "mov %rdi, %rax\n jmp *%rax",
        "jmp *8(%rdi)",
        "mov (%rdi,%rsi,8), %r11\n jmp *%r11",
    ] {
        assert_proven(&function("f", body));
    }
    // With nothing on the stack, a caller's caller is found as after a tail call.
    let caller = function(
        "f",
        "test %esi, %esi\n jz own\n lea own(%rip), %r11\n jmp g\nown: ret",
    );
    assert_proven(&(caller + &function("g", "jmp *%r11")));
}

/// Nothing is known behind bytes that are no known instruction: here REX2, of APX.
#[test]
fn nothing_is_proven_in_a_function_with_an_unknown_instruction() {
    const PUSH: &str = ".byte 0xd5, 0x08, 0x53";
    let body = format!(
        "test %edi, %edi\n jz 1f\nunknown: {PUSH}\n .cfi_adjust_cfa_offset 8\n nop\n ret\n .cfi_adjust_cfa_offset -8\n1: ret"
    );
    let file = assembled(&function("f", &body));
    for origin in [CodeOrigin::HandWritten, CodeOrigin::Compiler] {
        let report = report_of(&file, origin);
        let found: Vec<_> = report
            .findings
            .iter()
            .map(|it| (it.code, it.severity, it.address.0))
            .collect();
        assert_eq!(
            found,
            [(FindingCode::UnknownInstruction, Severity::Unproven, 4)],
            "{origin:?}"
        );
        assert_eq!(
            (report.totals.proven, report.totals.unproven),
            (0, 3),
            "{origin:?}"
        );
    }
    // Data behind the code.
    for origin in [CodeOrigin::HandWritten, CodeOrigin::Compiler] {
        let report = report_of(&assembled(&function("f", &format!("ret\n {PUSH}"))), origin);
        assert_eq!(
            (report.totals.proven, report.totals.rows),
            (1, 1),
            "{:#?}",
            report.findings
        );
    }
}

/// Rows that are right only if a call does not return.
#[test]
fn calls_assumed_not_to_return_are_listed() {
    let source = |callee: &str| {
        function(
            "f",
            &format!(
                "test %edi, %edi
        je 1f
        sub $8, %rsp
        .cfi_adjust_cfa_offset 8
call:   call {callee}
        .cfi_adjust_cfa_offset -8
1:      mov $1, %eax
        ret"
            ),
        )
    };
    let (report_of_unknown, call) = report(&source("fail"), "call");
    assert!(
        report_of_unknown.findings.is_empty(),
        "{:#?}",
        report_of_unknown.findings
    );
    assert_eq!(report_of_unknown.totals.assuming_noreturn, 3);
    let calls: Vec<u64> = report_of_unknown
        .calls_assumed_noreturn
        .iter()
        .map(|at| at.0)
        .collect();
    assert_eq!(calls, [call]);
    // The code of a function of the file shows whether it returns.
    for (own, is_right) in [("ret", false), ("1: jmp 1b", true), ("call exit", true)] {
        let source = source("own") + &function("own", own);
        let (report, _) = report(&source, "f");
        let is_clean = report
            .findings
            .iter()
            .all(|it| it.severity < Severity::Unproven);
        assert_eq!(is_clean, is_right, "{own}: {:#?}", report.findings);
        assert_eq!(report.totals.assuming_noreturn, 0, "{own}");
    }
}

/// Padding behind a call of an unknown function changes nothing.
#[test]
fn padding_behind_a_call_that_does_not_return_is_passed() {
    let source = |callee: &str, other_path: &str| {
        function(
            "f",
            &format!(
                "{other_path}
        sub $8, %rsp
        .cfi_adjust_cfa_offset 8
call:   call {callee}
        .p2align 4
        .cfi_adjust_cfa_offset -8
behind: mov $1, %eax
        ret"
            ),
        )
    };
    let other_path = "test %edi, %edi\n je behind";
    let (padded, call) = report(&source("fail", other_path), "call");
    assert!(padded.findings.is_empty(), "{:#?}", padded.findings);
    let calls: Vec<u64> = padded
        .calls_assumed_noreturn
        .iter()
        .map(|at| at.0)
        .collect();
    assert_eq!(calls, [call]);
    // Nothing else leads there.
    let (only, behind) = report(&source("fail", ""), "behind");
    let expected = [(FindingCode::CfaOffset, Severity::Refuted, 0)];
    assert_eq!(found(&only, behind), expected);
    // The callee returns.
    let own = source("own", other_path) + &function("own", "ret");
    let (returning, behind) = report(&own, "behind");
    let expected = [(FindingCode::HeightsDiffer, Severity::Refuted, 0)];
    assert_eq!(found(&returning, behind), expected);
}

/// The word behind a table is not relocated, so it is 0. Code begins there in an object.
#[test]
fn a_table_of_addresses_ends_at_a_null() {
    let source = function(
        "f",
        "push %rbx
        .cfi_adjust_cfa_offset 8
        .cfi_offset %rbx, -16
        lea table(%rip), %rdx
        jmp *(%rdx,%rdi,8)
1:      mov %edi, %ebx
2:      pop %rbx
        .cfi_adjust_cfa_offset -8
        .cfi_restore %rbx
        ret",
    ) + ".section .data.rel.ro, \"aw\"\ntable: .quad 1b, 2b, 0, 0\n";
    assert_proven(&source);
}

/// An epilogue with a label for each number of registers, which callers jump to with the address of
/// the return address in `r10`.
fn outlined_epilogue(cfa: &str) -> String {
    format!(
        "
        .globl restore_2
        .type restore_2, @function
restore_2: .cfi_startproc
        .cfi_def_cfa %r10, {cfa}
        .cfi_offset %rbx, -16
        .cfi_offset %rbp, -24
        mov -8(%r10), %rbx
        .cfi_restore %rbx
        .globl restore_1
        .type restore_1, @function
restore_1: mov -16(%r10), %rbp
        .cfi_restore %rbp
        mov %r10, %rsp
        .cfi_def_cfa %rsp, 8
f:      ret
        .cfi_endproc
        .size restore_1, . - restore_1
        .size restore_2, . - restore_2
"
    )
}

#[test]
fn a_label_is_entered_as_its_row_says() {
    assert_proven(&outlined_epilogue("8"));
    let (report, last) = report(&outlined_epilogue("16"), "f");
    let expected = (FindingCode::CfaOffset, Severity::Refuted, 0);
    assert!(
        found(&report, last).contains(&expected),
        "{:#?}",
        report.findings
    );
    // Code that returns properly if it is called is called, whatever the row there.
    let inner = "push %rbx
        .cfi_adjust_cfa_offset 8
        .cfi_offset %rbx, -16
        pop %rbx
        .cfi_def_cfa_offset 8
        .cfi_restore %rbx
        ret
        .cfi_def_cfa_offset 16
        .globl inner
        .type inner, @function
inner:  mov %edi, %eax
        ret";
    let (report, inner) = crate::common::report(&function("f", inner), "inner");
    let expected = (FindingCode::CfaOffset, Severity::Refuted, 0);
    assert!(
        found(&report, inner).contains(&expected),
        "{:#?}",
        report.findings
    );
}

/// Code that enters another context overwrites registers that its caller never needs.
#[test]
fn registers_on_the_way_to_another_context_are_not_refuted() {
    let body = |[before, context, behind]: [&str; 3]| {
        format!(
            "{before}
        mov 16(%rdi), %r8
        mov 24(%rdi), %rdx
        mov %esi, %ebx
        test %ebx, %ebx
        {context}
        mov (%rdi), %rbx
        mov %r8, %rsp
        jmp *%rdx
        {behind}"
        )
    };
    let context = ".cfi_def_cfa %rdi, 0
        .cfi_register %rsp, %r8
        .cfi_register %rip, %rdx
        .cfi_offset %rbx, 0";
    let worst = |parts: [&str; 3]| {
        let (report, _) = report(&function("f", &body(parts)), "f");
        report.findings.iter().map(|it| it.severity).max()
    };
    assert_eq!(worst(["", context, ""]), Some(Severity::Unproven));
    assert_eq!(worst(["", "", ""]), Some(Severity::Refuted));
    // Code behind the context is not on the way to it.
    let context = format!(".cfi_remember_state\n{context}");
    let returns = ".cfi_restore_state
1:      mov %esi, %ebx
        ret";
    let jumps = "test %esi, %esi
        js 1f";
    assert_eq!(worst([jumps, &context, returns]), Some(Severity::Refuted));
}

/// A part that only a function's jump enters is blamed itself, and not the function.
#[test]
fn a_cold_part_without_the_state_of_the_jump_is_blamed() {
    let source = |rows: &str| {
        format!(
            "
        .globl f
        .type f, @function
f:      .cfi_startproc
        push %r12
        .cfi_adjust_cfa_offset 8
        .cfi_offset %r12, -16
        mov %rdi, %r12
        test %edi, %edi
        js f.cold
back:   mov %r12, %rax
        pop %r12
        .cfi_adjust_cfa_offset -8
        .cfi_restore %r12
        ret
        .cfi_endproc
        .size f, . - f
        nop
        .type f.cold, @function
f.cold: .cfi_startproc
        {rows}
        neg %r12
        call log
        jmp back
        .cfi_endproc
        .size f.cold, . - f.cold
"
        )
    };
    assert_proven(&source(".cfi_def_cfa_offset 16\n .cfi_offset %r12, -16"));
    let (wrong, cold) = report(&source(""), "f.cold");
    let expected = [
        (FindingCode::CfaOffset, Severity::Refuted, 0),
        (FindingCode::RegisterLost, Severity::Refuted, 0),
    ];
    assert_eq!(found(&wrong, cold), expected);
    assert_eq!(wrong.totals.refuted, 1);
    // The directives of the findings are the right ones.
    let fixes: Vec<&str> = wrong
        .findings
        .iter()
        .filter_map(|it| it.fix.as_deref())
        .collect();
    assert_eq!(fixes, [".cfi_adjust_cfa_offset 8", ".cfi_offset %r12, -16"]);
}

/// Of two ways into a shared part, the one that contradicts its first row is blamed.
#[test]
fn a_shared_part_is_not_blamed_for_a_wrong_way_into_it() {
    let entry = |name: &str, row: &str, code: &str| function(name, &format!("{row}\n {code}"));
    let first = ".cfi_def_cfa_offset 16";
    let source = |row: &str| {
        let shared = entry(
            "shared",
            first,
            "add $8, %rsp\n .cfi_adjust_cfa_offset -8\n ret",
        );
        let large = entry("large", row, "mov %r10, %r11\njump: jmp shared");
        // It falls through.
        entry("small", first, "mov %rdi, %r10") + &shared + &large
    };
    assert_proven(&source(first).replace("small", "f"));
    let (wrong, jump) = report(&source(""), "jump");
    assert_eq!(
        found(&wrong, jump),
        [(FindingCode::CfaOffset, Severity::Refuted, 0)]
    );
}

/// A function that keeps the caller's stack pointer in its frame, with a row of these rules in the
/// middle.
fn with_row(cfa: i32, rules: &str) -> String {
    let body = format!(
        "push %rbx
        .cfi_adjust_cfa_offset 8
        .cfi_offset %rbx, -16
        lea 16(%rsp), %rax
        push %rax
        .cfi_adjust_cfa_offset 8
        .cfi_def_cfa %rsp, {cfa}
        {rules}
row:    xor %ebx, %ebx
        nop
        .cfi_def_cfa %rsp, 24
        .cfi_restore %rsp
        .cfi_offset %rbx, -16
        .cfi_offset %rip, -8
        add $8, %rsp
        .cfi_adjust_cfa_offset -8
        pop %rbx
        .cfi_adjust_cfa_offset -8
        .cfi_restore %rbx
        ret"
    );
    function("f", &body)
}

/// Offsets may count from any CFA, if a rule finds the caller's stack pointer.
#[test]
fn a_row_may_count_from_a_cfa_of_its_own() {
    // DW_CFA_val_expression of rsp: DW_OP_breg7, a number.
    let by_value = |distance: u8| format!(".cfi_escape 0x16, 7, 2, 0x77, {distance}");
    for cfa in [-128, 0, 8, 24, 4096] {
        let saved = format!(
            ".cfi_offset %rbx, {}
 .cfi_offset %rip, {}",
            8 - cfa,
            16 - cfa
        );
        let in_frame = |at: i32| format!(".cfi_offset %rsp, {}", at - cfa);
        for (rule, is_right) in [
            (by_value(24), true),
            (by_value(16), false),
            (in_frame(0), true),
            (in_frame(8), false),
        ] {
            let (report, row) = report(
                &with_row(
                    cfa,
                    &format!(
                        "{saved}
 {rule}"
                    ),
                ),
                "row",
            );
            let found = found(&report, row);
            assert_eq!(found.is_empty(), is_right, "{cfa} {rule}: {found:?}");
            if !is_right {
                let all = report.findings.iter();
                let subjects: Vec<_> = all.map(|it| (it.severity, it.subject.as_str())).collect();
                assert_eq!(
                    subjects,
                    [(Severity::Refuted, "the caller's rsp")],
                    "{cfa} {rule}"
                );
            }
        }
        // Offsets from the caller's stack pointer are others.
        if cfa != 24 {
            let rules = format!(
                ".cfi_offset %rbx, -16
 .cfi_offset %rip, -8
 {}",
                by_value(24)
            );
            let (report, _) = report(&with_row(cfa, &rules), "row");
            let codes: Vec<_> = report.findings.iter().map(|it| it.code).collect();
            assert_eq!(codes.len(), 2, "{cfa}: {codes:?}");
            assert!(
                codes.contains(&FindingCode::ReturnAddress),
                "{cfa}: {codes:?}"
            );
        }
    }
}

/// An interrupt's frame: the caller's stack pointer is on the stack.
#[test]
fn a_row_finds_an_interrupted_stack_pointer() {
    let body = |at: i32| {
        let body = format!(
            ".cfi_def_cfa %rsp, 40
        .cfi_offset %rip, -40
        .cfi_offset %rsp, {at}
        push %rax
        .cfi_adjust_cfa_offset 8
        call handle
        pop %rax
        .cfi_adjust_cfa_offset -8
        iretq"
        );
        function("f", &body)
    };
    assert_proven(&body(-16));
    let (report, _) = report(&body(-24), "f");
    let all = report.findings.iter();
    let subjects: Vec<_> = all.map(|it| (it.severity, it.subject.as_str())).collect();
    // In each row, since `iretq` shows how the code was entered.
    assert_eq!(subjects, [(Severity::Unproven, "the caller's rsp"); 2]);
}

/// After a system call the stack pointer is the caller's.
#[test]
fn a_system_call_leaves_the_stack_pointer() {
    let body = ".cfi_def_cfa %rsp, 8
        .cfi_register %rip, %rcx
        mov %eax, %eax
        sysretq";
    let (report, _) = report(&function("f", body), "f");
    let found: Vec<_> = report
        .findings
        .iter()
        .map(|it| (it.severity, it.subject.as_str()))
        .collect();
    assert_eq!(found, [(Severity::Refuted, "the CFA")]);
}

/// A function, and something behind its entry within its size.
fn with_tail(body: &str, tail: &str) -> String {
    function("f", body).replace(".size f", &format!("{tail}\n .size f"))
}

/// Data behind a function's entry needs no row, though the symbol's size includes it.
#[test]
fn data_behind_an_entry_is_not_missing_from_it() {
    let string = ".balign 32\nname: .asciz \"plain C, 64-bit\"";
    let table = ".balign 4\ntable: .long case_1 - table, case_2 - table";
    let jump = "lea table(%rip), %rax
        and $1, %edi
        movslq (%rax,%rdi,4), %rcx
        add %rax, %rcx
        jmp *%rcx
case_1: mov %edi, %eax
case_2: ret";
    for (body, tail) in [
        ("lea name(%rip), %rax\n ret", string),
        (jump, table),
        ("ret", "nop\n nopl (%rax)"),
        ("ret", "nop\n .cfi_startproc\n ret\n .cfi_endproc"),
        ("call fail", ".balign 32, 0x90"),
    ] {
        let (report, _) = report(&with_tail(body, tail), "f");
        assert!(report.findings.is_empty(), "{body}: {:#?}", report.findings);
    }
}

/// Control gets there, or code is there.
#[test]
fn code_behind_an_entry_lacks_rows() {
    let code = "rest: mov %edi, %eax\n ret";
    for (body, severity) in [
        ("test %edi, %edi\n je rest\n ret", Severity::Refuted),
        ("test %edi, %edi", Severity::Refuted),
        ("call other", Severity::Refuted),
        ("lea rest(%rip), %rax\n jmp *%rax", Severity::Refuted),
        ("jmp *%rax", Severity::Unproven),
        ("ret", Severity::Unproven),
    ] {
        let (report, rest) = report(&with_tail(body, code), "rest");
        let all = report.findings.iter().filter(|it| it.address.0 <= rest);
        let worst = all.map(|it| it.severity).max();
        assert_eq!(worst, Some(severity), "{body}: {:#?}", report.findings);
    }
}
