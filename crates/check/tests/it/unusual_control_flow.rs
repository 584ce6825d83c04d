//! Unusual control flow, and data between instructions: code there is checked, and data is not
//! reported as unreached code.

use crate::common::{check, in_function, report};
use unspool_check::{Finding, FindingCode, Severity};

/// A function that jumps over a table into the middle of a decoded instruction: the table ends with
/// a prefix and an opcode that takes eight more bytes.
fn source(jump: &str, adjust: &str) -> String {
    format!(
        "
        .globl f
        .type f, @function
f:      .cfi_startproc
        cmp $1, %edi
        ja others
        lea table(%rip), %rdx
        mov %edi, %eax
        movslq (%rdx,%rax,4), %rax
        add %rdx, %rax
        {jump}
table:  .long first - table, others - table
        .byte 0x48, 0xb8
first:  sub $24, %rsp
        {adjust} 24
subtracted:
        mov %edi, (%rsp)
        add $24, %rsp
        {adjust} -24
        ret
others: ret
        .cfi_endproc
        .size f, . - f
"
    )
}

#[test]
fn code_behind_a_jump_table_is_judged() {
    let (found, _) = check(&source("jmp *%rax", ".cfi_adjust_cfa_offset"), "subtracted");
    assert!(found.is_empty(), "{found:#?}");
    let (found, subtracted) = check(&source("jmp *%rax", "#"), "subtracted");
    assert!(
        found
            .iter()
            .any(|it| it.code == FindingCode::CfaOffset && it.address.0 == subtracted),
        "{found:#?}"
    );
}

#[test]
fn code_behind_data_that_is_jumped_over_is_judged() {
    let (found, subtracted) = check(&source("jmp first", "#"), "subtracted");
    assert!(
        found
            .iter()
            .any(|it| it.code == FindingCode::CfaOffset && it.address.0 == subtracted),
        "{found:#?}"
    );
}

/// A string behind a call; the callee pops the string's address.
#[test]
fn a_call_over_a_string_does_not_come_back() {
    let source = |adjust: &str| {
        format!(
            "
        .globl f
        .type f, @function
f:      .cfi_startproc
        call 1f
        .cfi_adjust_cfa_offset 8
        .asciz \"inline string\"
1:      pop %rax
        {adjust}
taken:  nop
        ret
        .cfi_endproc
        .size f, . - f
"
        )
    };
    // Without lines, the string looks like unreached code.
    let (found, _) = check(&source(".cfi_adjust_cfa_offset -8"), "taken");
    let codes: Vec<_> = found.iter().map(|it| it.code).collect();
    assert_eq!(codes, [FindingCode::Unreached], "{found:#?}");
    let (found, taken) = check(&source(""), "taken");
    let is_there = |it: &Finding| it.code == FindingCode::CfaOffset && it.address.0 == taken;
    assert!(found.iter().any(is_there), "{found:#?}");
}

/// A jump into the middle of an instruction keeps the path through all of it: glibc jumps over
/// `lock`.
#[test]
fn a_jump_over_a_prefix_stays_code() {
    let source = "
        .globl f
        .type f, @function
f:      .cfi_startproc
        test %esi, %esi
        je 1f
        lock
1:      incl (%rdi)
        push %rbx
wrong:  pop %rbx
        ret
        .cfi_endproc
        .size f, . - f
";
    let (found, wrong) = check(source, "wrong");
    let found: Vec<_> = found.iter().map(|it| (it.code, it.address.0)).collect();
    assert_eq!(found, [(FindingCode::CfaOffset, wrong)]);
}

/// A call over a string asks for the string's address.
#[test]
fn code_behind_a_string_that_is_called_over_is_judged() {
    let source = "
        .globl f
        .type f, @function
f:      .cfi_startproc
        call 1f
        .string \"/bin/sh\"
        .byte 0x48, 0xb8
        .cfi_adjust_cfa_offset 8
1:      pop %rcx
popped: push %rcx
        pop %rcx
        add $1, %rcx
        mov %rcx, %rax
        ret
        .cfi_endproc
        .size f, . - f
";
    let (found, popped) = check(source, "popped");
    let found: Vec<_> = found.iter().map(|it| (it.code, it.address.0)).collect();
    assert!(
        found.contains(&(FindingCode::CfaOffset, popped)),
        "{found:x?}"
    );
}

/// Decoded text before the code behind it is not followed: no call returns to it.
#[test]
fn text_behind_a_call_is_data() {
    let source = |adjust: &str| {
        format!(
            "
        .globl f
        .type f, @function
f:      .cfi_startproc
        sub $24, %rsp
        .cfi_adjust_cfa_offset 24
        call 1f
        .asciz \"hello, world\"
1:      {adjust}
pops:   pop %rdi
        .cfi_def_cfa_offset 32
        add $24, %rsp
        .cfi_adjust_cfa_offset -24
        ret
        .cfi_endproc
        .size f, . - f
"
        )
    };
    let found = |adjust: &str| {
        let (found, pops) = check(&source(adjust), "pops");
        let found: Vec<_> = found.iter().map(|it| (it.code, it.address.0)).collect();
        (found, pops)
    };
    // The text is unreached: without lines it may be code.
    let (right, _) = found(".cfi_adjust_cfa_offset 8");
    let codes: Vec<_> = right.iter().map(|(code, _)| *code).collect();
    assert_eq!(codes, [FindingCode::Unreached], "{right:x?}");
    let (wrong, pops) = found("");
    assert!(
        wrong.contains(&(FindingCode::CfaOffset, pops)),
        "{wrong:x?}"
    );
}

/// Codes and addresses of the findings for a function, with `.cfi_startproc` and `.cfi_endproc`
/// around it; `label` is 0.
fn codes(body: &str, label: &str) -> Vec<(FindingCode, i64)> {
    let source = format!(
        "
        .globl f
        .type f, @function
f:      .cfi_startproc
        {body}
        .cfi_endproc
        .size f, . - f
        "
    );
    let (found, label) = check(&source, label);
    let places = found.iter().map(|it| {
        let behind = it.address.0.wrapping_sub(label);
        (it.code, behind.cast_signed())
    });
    places.collect()
}

/// A callee returns behind its caller's inline data.
#[test]
fn a_return_address_may_be_moved() {
    let behind = |body: &str| codes(&format!("{body}\nbehind: nop\n ret"), "behind");
    assert_eq!(behind("addq $8, (%rsp)"), []);
    let in_register = "pop %rcx
        .cfi_adjust_cfa_offset -8
        .cfi_register %rip, %rcx
        lea 8(%rcx), %rcx
        push %rcx
        .cfi_adjust_cfa_offset 8
        .cfi_offset %rip, -8";
    assert_eq!(behind(in_register), []);
    assert_eq!(
        behind("movq $0, (%rsp)"),
        [(FindingCode::ReturnAddress, 0)],
        "it is another"
    );
    assert_eq!(
        behind("subq $5, (%rsp)"),
        [(FindingCode::ReturnAddress, 0)],
        "before the call"
    );
    // The return takes the address on top of the stack.
    let copied = "mov (%rsp), %rax
        add $1000, %rax
        push %rax
        .cfi_adjust_cfa_offset 8
        .cfi_offset %rip, -16
at:     nop
        add $8, %rsp
        .cfi_adjust_cfa_offset -8
        .cfi_offset %rip, -8
        ret";
    assert_eq!(codes(copied, "at"), [(FindingCode::ReturnAddress, 0)]);
    // A lost register stays lost.
    let lost = "push %rbx
        .cfi_adjust_cfa_offset 8
        .cfi_offset %rbx, -16
        xor %ebx, %ebx
        add $8, %rsp
        .cfi_adjust_cfa_offset -8
        addq $8, (%rsp)
last:   ret";
    assert_eq!(codes(lost, "last"), [(FindingCode::PrivateConvention, 0)]);
}

/// The callers of such a function are followed to its return address.
#[test]
fn code_behind_data_behind_a_call_is_judged() {
    let called = |skip: u32, adjust: &str| {
        let body = format!(
            "push %rbx
        .cfi_adjust_cfa_offset 8
        .cfi_offset %rbx, -16
        mov %rsp, %rbx
        call skip
        push %rax
        {adjust}
back:   nop
        xor %eax, %eax
        mov %rbx, %rsp
        .cfi_def_cfa_offset 16
        pop %rbx
        .cfi_adjust_cfa_offset -8
        .cfi_restore %rbx
        ret
        .cfi_endproc
        .type skip, @function
skip:   .cfi_startproc
        addq ${skip}, (%rsp)
        ret"
        );
        codes(&body, "back")
    };
    assert_eq!(called(0, ".cfi_adjust_cfa_offset 8"), []);
    assert_eq!(called(0, ""), [(FindingCode::CfaOffset, 0)]);
    // The push is a byte of data.
    let found = called(1, ".cfi_adjust_cfa_offset 8");
    assert!(found.contains(&(FindingCode::CfaOffset, 0)), "{found:?}");
    let found = called(1, "");
    assert!(!found.contains(&(FindingCode::CfaOffset, 0)), "{found:?}");
}

/// A retpoline: the loop behind its call only catches speculative execution.
#[test]
fn a_loop_for_speculation_alone_is_none() {
    let source = |adjust: &str, last: &str| {
        format!(
            "
        .globl f
        .type f, @function
f:      .cfi_startproc
        call 1f
        .cfi_adjust_cfa_offset 8
2:      pause
        lfence
        {last}
1:      {adjust}
stores: mov %rax, (%rsp)
        ret
        .cfi_endproc
        .size f, . - f
        "
        )
    };
    let codes = |adjust: &str, last: &str| {
        let (found, stores) = check(&source(adjust, last), "stores");
        let found: Vec<_> = found.iter().map(|it| (it.code, it.address.0)).collect();
        (found, stores)
    };
    assert_eq!(codes("", "jmp 2b").0, []);
    let (wrong, stores) = codes(".cfi_adjust_cfa_offset 8", "jmp 2b");
    assert!(
        wrong.contains(&(FindingCode::CfaOffset, stores)),
        "{wrong:x?}"
    );
    // Without a call before it, it may be reached.
    let parked = "lea park(%rip), %rax
        mov %rax, resume(%rip)
        ret
park:   pause
        jmp park";
    assert_eq!(self::codes(parked, "park"), [(FindingCode::Unreached, 0)]);
    // A loop with an effect may be reached.
    let (other, _) = codes("", "inc %eax\n jmp 2b");
    assert_eq!(other.first().map(|it| it.0), Some(FindingCode::Unreached));
}

/// Functions continue in another one with another state than its first row says: later faults in it
/// have the same cause.
#[test]
fn a_shared_body_is_reported_at_its_start() {
    let of = |adjust: &str, inner: &str| {
        format!(
            "
        .globl f
        .type f, @function
f:      .cfi_startproc
        push %rbx
        .cfi_def_cfa_offset 16
        .cfi_offset %rbx, -16
        xor %ebx, %ebx
        jmp body
        .cfi_endproc
        .size f, . - f
        .globl g
        .type g, @function
g:      .cfi_startproc
        push %rbx
        .cfi_def_cfa_offset 16
        .cfi_offset %rbx, -16
        mov $1, %ebx
        .cfi_endproc
        .size g, . - g
        .type body, @function
body:   .cfi_startproc
        {adjust}
        .cfi_offset %rbx, -16
        mov %rdi, %rax
        add %rbx, %rax
{inner} pop %rbx
        .cfi_def_cfa_offset 8
        .cfi_restore %rbx
        ret
        .cfi_endproc
        .size body, . - body
        "
        )
    };
    let source = |adjust: &str| of(adjust, "");
    let (right, _) = check(&source(".cfi_def_cfa_offset 16"), "body");
    assert_eq!(right, []);
    let (wrong, body) = check(&source(""), "body");
    let found: Vec<_> = wrong.iter().map(|it| (it.code, it.address.0)).collect();
    assert_eq!(found, [(FindingCode::CfaOffset, body)]);
    // Independent faults are reported, too.
    let inner = "        push %r12\ninner:  pop %r12\n";
    let (wrong, inner) = check(&of("", inner), "inner");
    let found: Vec<_> = wrong.iter().map(|it| (it.code, it.address.0)).collect();
    let both = [body, inner].map(|at| (FindingCode::CfaOffset, at));
    assert_eq!(found, both);
}

/// The stack pointer is lowered in a loop, together with the slot that has the CFA: different
/// heights join, and the row is right.
#[test]
fn a_cfa_in_a_slot_that_goes_along_is_proven() {
    let source = |moved: &str| {
        format!(
            "
        .globl f
        .type f, @function
f:      .cfi_startproc
        mov %rsp, %rax
        .cfi_def_cfa_register %rax
        push %rbx
        .cfi_offset %rbx, -16
        sub $24, %rsp
        and $-64, %rsp
        mov %rax, 8(%rsp)
        .cfi_escape 0x0f,0x05,0x77,0x08,0x06,0x23,0x08
        mov $4, %ecx
head:   sub $64, %rsp
        {moved}
copies: mov 72(%rsp), %rax
        mov %rax, 8(%rsp)
        .cfi_escape 0x0f,0x05,0x77,0x08,0x06,0x23,0x08
        xor %ebx, %ebx
        dec %ecx
        jnz head
        mov 8(%rsp), %rsi
        .cfi_def_cfa %rsi, 8
        mov -8(%rsi), %rbx
        .cfi_restore %rbx
        mov %rsi, %rsp
        .cfi_def_cfa_register %rsp
        ret
        .cfi_endproc
        .size f, . - f
        "
        )
    };
    let escape = ".cfi_escape 0x0f,0x06,0x77,0xc8,0x00,0x06,0x23,0x08";
    let (report, _) = report(&source(escape), "head");
    assert_eq!((report.findings, report.totals.refuted), (Vec::new(), 0));
    let (found, copies) = check(&source(""), "copies");
    let found: Vec<_> = found.iter().map(|it| (it.code, it.address.0)).collect();
    assert_eq!(found, [(FindingCode::Expression, copies)]);
}

/// Vector registers are not tracked: a register that still has its value does not make the row
/// doubtful in another way.
#[test]
fn values_saved_in_vector_registers_are_not_refuted() {
    let source = "
        .globl f
        .type f, @function
f:      .cfi_startproc
        movq %rbx, %xmm8
        .cfi_register %rbx, %xmm8
kept:   nop
        xor %ebx, %ebx
        movq %xmm8, %rbx
        .cfi_restore %rbx
        ret
        .cfi_endproc
        .size f, . - f
        ";
    let (found, kept) = check(source, "kept");
    let first = found.first().expect("it cannot be proven");
    assert_eq!(
        (first.address.0, first.severity, &*first.message()),
        (
            kept,
            Severity::Unproven,
            "it cannot be shown that the caller's rbx is xmm8, as declared"
        )
    );
}

/// A jump behind the push of an address is a call that returns there.
#[test]
fn code_behind_a_call_by_hand_is_judged() {
    let source = "
        .globl f
        .type f, @function
f:      .cfi_startproc
        sub $8, %rsp
        .cfi_adjust_cfa_offset 8
        lea 1f(%rip), %rax
        push %rax
        .cfi_adjust_cfa_offset 8
        jmp g
1:      nop
        add $8, %rsp
        .cfi_adjust_cfa_offset -8
        ret
        .cfi_endproc
        .size f, . - f
back = 1b
";
    let (found, back) = check(source, "back");
    let found: Vec<_> = found.iter().map(|it| (it.code, it.address.0)).collect();
    assert!(
        found.contains(&(FindingCode::CfaOffset, back)),
        "{found:x?}"
    );
    let right = source.replace("1:", ".cfi_adjust_cfa_offset -8\n1:");
    let (found, _) = check(&right, "back");
    assert!(found.is_empty(), "{found:#?}");
}

/// The mark of the outermost frame says that there is no caller.
#[test]
fn the_outermost_frame_does_not_return() {
    let source = "
        .globl f
        .type f, @function
f:      .cfi_startproc
        .cfi_undefined %rip
        lea 1(%rdi), %eax
        ret
        .cfi_endproc
        .size f, . - f
";
    let (found, begin) = check(source, "f");
    let found: Vec<_> = found.iter().map(|it| (it.code, it.address.0)).collect();
    assert_eq!(found, [(FindingCode::ReturnAddress, begin)]);
    let (found, _) = check(&source.replace("ret\n", "ud2\n"), "f");
    assert!(found.is_empty(), "{found:#?}");
}

/// Linkers put the address of a function in place of the slot that names it.
#[test]
fn slots_that_name_functions_are_followed() {
    let helper = "
        .globl h
        .type h, @function
h:      .cfi_startproc
        mov %edi, %ebx
        .cfi_undefined %rbx
        ret
        .cfi_endproc
        .size h, . - h
        .type k, @function
k:      .cfi_startproc
        jmp *h@GOTPCREL(%rip)
        .cfi_endproc
        .size k, . - k
";
    for call in [
        "call *h@GOTPCREL(%rip)",
        "mov h@GOTPCREL(%rip), %rax; call *%rax",
        "call k",
    ] {
        let source = in_function(&format!("\t{call}\nlost:\tret\n"));
        let (found, lost) = check(&format!("{source}{helper}"), "lost");
        let found: Vec<_> = found.iter().map(|it| (it.severity, it.address.0)).collect();
        assert_eq!(found, [(Severity::Refuted, lost)], "{call}");
    }
}

/// The bytes of a number push, if control gets there.
#[test]
fn nothing_is_proven_behind_a_jump_into_an_instruction() {
    let body = |hidden: &str| {
        let jump = "\ttest\t%edi, %edi\n\tjne\thidden\n";
        in_function(&format!("{jump}\t{hidden}\n\tret\n"))
    };
    let (found, begin) = check(
        &body(".byte 0xb8\nhidden: .byte 0x50, 0x58, 0x90, 0x90"),
        "f",
    );
    let found: Vec<_> = found.iter().map(|it| (it.code, it.address.0)).collect();
    assert_eq!(found, [(FindingCode::UnknownInstruction, begin + 2)]);
    let (found, _) = check(&body("lock\nhidden: incl (%rsi)"), "f");
    assert!(found.is_empty(), "{found:#?}");
    let pushed = "push %rax\n\t.cfi_adjust_cfa_offset 8\n\tlock\nhidden: incl (%rsi)";
    let popped = "pop %rax\n\t.cfi_adjust_cfa_offset -8";
    let (found, _) = check(&body(&format!("{pushed}\n\t{popped}")), "f");
    assert!(!found.is_empty());
}

#[test]
fn an_entry_may_end_with_a_halt() {
    let source = "
        .globl start
start:  .cfi_startproc
        .cfi_undefined rip
        xor %ebp, %ebp
        pop %rsi
        call *main@GOTPCREL(%rip)
        hlt
        .cfi_endproc
";
    let (found, _) = check(source, "start");
    assert!(found.is_empty(), "{found:#?}");
    let (found, _) = check(&source.replace("hlt", "nop"), "start");
    assert_eq!(
        found.iter().map(|finding| finding.code).collect::<Vec<_>>(),
        [FindingCode::EntryTooShort]
    );
}

/// As in OpenSSL's AES-CBC: the address of pushed registers is kept in a frame that begins
/// elsewhere, across calls.
#[test]
fn the_address_of_saved_registers_is_kept_across_calls() {
    let source = "
        .globl f
        .type f, @function
f:      .cfi_startproc
        cmp $3, %rdi
        je out
        push %rbx
        .cfi_adjust_cfa_offset 8
        .cfi_offset %rbx, -16
        lea -88(%rsp), %r10
        and $-64, %r10
        xchg %rsp, %r10
        .cfi_def_cfa_register %r10
        mov %r10, 16(%rsp)
        .cfi_escape 0x0f, 0x05, 0x77, 0x10, 0x06, 0x23, 0x10
        call g
        mov 16(%rsp), %rsi
loaded: .cfi_def_cfa %rsi, 16
        mov (%rsi), %rbx
        .cfi_restore %rbx
        lea 8(%rsi), %rsp
        .cfi_def_cfa %rsp, 8
out:    ret
        .cfi_endproc
        .size f, . - f
";
    let (found, _) = check(source, "loaded");
    assert!(found.is_empty(), "{found:#?}");
    let (found, loaded) = check(&source.replace("%rsi, 16", "%rsi, 24"), "loaded");
    let found: Vec<_> = found
        .iter()
        .map(|finding| (finding.code, finding.address.0))
        .collect();
    assert_eq!(found, [(FindingCode::CfaOffset, loaded)]);
}

/// If one path has an unknown stack pointer, the heights need not differ.
#[test]
fn heights_differ_only_where_both_are_known() {
    let source = |other: &str| {
        format!(
            "
        .globl f
        .type f, @function
f:      .cfi_startproc
        test %edi, %edi
        je meet
        {other}
meet:   mov %eax, %ecx
        ret
        .cfi_endproc
        .size f, . - f
"
        )
    };
    let (found, meet) = check(&source("push %rcx"), "meet");
    let is_there = |finding: &&Finding| finding.code == FindingCode::HeightsDiffer;
    let places: Vec<_> = found
        .iter()
        .filter(is_there)
        .map(|found| found.address.0)
        .collect();
    assert_eq!(places, [meet]);
    let (found, _) = check(
        &source("mov (%rcx), %rsp\n mov (%rsp), %rdx\n call g"),
        "meet",
    );
    assert!(!found.is_empty());
    assert_eq!(found.iter().find(is_there), None);
}

/// As in libgcc for architectures other than x86-64, and from outliners.
#[test]
fn an_outlined_prologue_leaves_what_it_pushes() {
    let source = |back: &str| {
        format!(
            "
        .globl f
        .type f, @function
f:      .cfi_startproc
        call save
behind: .cfi_def_cfa_offset 24
        .cfi_offset %rbx, -16
        .cfi_offset %r12, -24
        mov %rdi, %rbx
        mov %rsi, %r12
        call g
        add %r12, %rax
        add %rbx, %rax
        pop %r12
        .cfi_def_cfa_offset 16
        .cfi_restore %r12
        pop %rbx
        .cfi_def_cfa_offset 8
        .cfi_restore %rbx
        ret
        .cfi_endproc
        .size f, . - f
        .type save, @function
save:   .cfi_startproc
        pop %r11
        .cfi_def_cfa_offset 0
        .cfi_register %rip, %r11
        push %rbx
        .cfi_def_cfa_offset 8
        .cfi_offset %rbx, -8
        push %r12
        .cfi_def_cfa_offset 16
        .cfi_offset %r12, -16
        {back}
        .cfi_endproc
        .size save, . - save
"
        )
    };
    let by_return = "push %r11\n .cfi_def_cfa_offset 24\n .cfi_offset %rip, -24\n ret";
    for back in ["jmp *%r11", by_return] {
        let right = source(back);
        let (found, behind) = check(&right, "behind");
        assert!(found.is_empty(), "{found:#?}");
        for (old, new, code) in [
            (
                "behind: .cfi_def_cfa_offset 24",
                "behind:",
                FindingCode::CfaOffset,
            ),
            (
                "behind: .cfi_def_cfa_offset 24\n        .cfi_offset %rbx, -16",
                "behind: .cfi_def_cfa_offset 24\n        .cfi_offset %rbx, -24",
                FindingCode::SavedElsewhere,
            ),
        ] {
            let wrong = right.replacen(old, new, 1);
            let (found, _) = check(&wrong, "behind");
            assert!(
                found
                    .iter()
                    .any(|found| (found.code, found.address.0) == (code, behind)),
                "{found:#?}"
            );
        }
    }
}

/// LLVM's empty inline vector points at its end, which is where the function's saves begin: that is
/// not a saved address.
#[test]
fn the_end_of_an_array_below_saved_registers_is_not_kept() {
    let source = "
        .globl f
        .type f, @function
f:      .cfi_startproc
        push %rbx
        .cfi_def_cfa_offset 16
        .cfi_offset %rbx, -16
        sub $16, %rsp
        .cfi_def_cfa_offset 32
        lea 16(%rsp), %rbx
        mov %rbx, (%rsp)
        mov %rsp, %rdi
        call g
        mov (%rsp), %rdi
        cmp %rbx, %rdi
        je done
        .cfi_def_cfa_offset 40
grown:  call free
        .cfi_def_cfa_offset 32
done:   add $16, %rsp
        .cfi_def_cfa_offset 16
        pop %rbx
        .cfi_def_cfa_offset 8
        ret
        .cfi_endproc
        .size f, . - f
";
    let (found, grown) = check(source, "grown");
    let found: Vec<_> = found
        .iter()
        .map(|finding| (finding.code, finding.address.0))
        .collect();
    assert_eq!(found, [(FindingCode::CfaOffset, grown)]);
}

/// As in stack probes. The second exit does not preserve it.
#[test]
fn callers_use_the_registers_a_local_function_preserves() {
    let source = |other: &str| {
        format!(
            "
        .globl f
        .type f, @function
f:      .cfi_startproc
        mov $0x2408, %eax
        call probe
behind: sub %rax, %rsp
        .cfi_def_cfa_offset 0x2410
        mov %rdi, (%rsp)
        add $0x2408, %rsp
        .cfi_def_cfa_offset 8
        ret
        .cfi_endproc
        .size f, . - f
        .type probe, @function
probe:  .cfi_startproc
        push %rax
        .cfi_def_cfa_offset 16
        mov %rsp, %r11
more:   sub $0x1000, %rax
        test %rsp, -8(%r11)
        jbe done
        lea -0x1000(%r11), %r11
        jmp more
done:   pop %rax
        .cfi_def_cfa_offset 8
        {other}
        ret
        .cfi_endproc
        .size probe, . - probe
"
        )
    };
    let (found, _) = check(&source(""), "behind");
    assert!(found.is_empty(), "{found:#?}");
    for other in [
        "xor %eax, %eax",
        "test %edi, %edi\n je kept\n mov %edi, %eax\n ret\nkept:",
        "test %edi, %edi\n je g",
        "lea g(%rip), %r11\n test %edi, %edi\n je kept\n jmp *(%r11)\nkept:",
    ] {
        let (found, _) = check(&source(other), "behind");
        assert!(!found.is_empty(), "{other}");
    }
}

/// A signal trampoline with rows `rows` and, from the label on, `own`.
fn trampoline(rows: &str, own: &str) -> String {
    format!(
        "
        .cfi_startproc
        {rows}
        nop
        .globl restore
        .type restore, @function
restore:
        {own}
        mov $15, %rax
        syscall
        .cfi_endproc
        .size restore, . - restore
"
    )
}

/// The CFA and the registers where the kernel puts them: `Linux
/// arch/x86/include/uapi/asm/sigcontext.h`.
const CONTEXT: &str = "
        .cfi_escape 0xf, 4, 0x77, 0xa0, 1, 6
        .cfi_escape 0x10, 12, 3, 0x77, 0xc8, 0
        .cfi_escape 0x10, 13, 3, 0x77, 0xd0, 0
        .cfi_escape 0x10, 14, 3, 0x77, 0xd8, 0
        .cfi_escape 0x10, 15, 3, 0x77, 0xe0, 0
        .cfi_escape 0x10, 6, 3, 0x77, 0xf8, 0
        .cfi_escape 0x10, 3, 3, 0x77, 0x80, 1
        .cfi_escape 0x10, 16, 3, 0x77, 0xa8, 1
";

#[test]
fn signals_frames_are_declared_as_such() {
    let (found, _) = check(
        &trampoline(&format!(".cfi_signal_frame\n{CONTEXT}"), ""),
        "restore",
    );
    assert!(found.is_empty(), "{found:#?}");
    let (found, restore) = check(&trampoline(CONTEXT, ""), "restore");
    let [finding] = &found[..] else {
        panic!("{found:#?}");
    };
    assert_eq!(finding.address.0, restore - 1);
    assert_eq!(
        finding.message(),
        "the frame is a signal's, and declared a function's"
    );
    assert_eq!(finding.fix.as_deref(), Some(".cfi_signal_frame"));
}

#[test]
fn the_row_of_a_signals_return_is_that_of_the_byte_before() {
    let source = trampoline(".cfi_signal_frame\n.cfi_def_cfa %rsp, 0", CONTEXT);
    let (found, restore) = check(&source, "restore");
    assert!(!found.is_empty());
    for finding in &found {
        assert_eq!(finding.address.0, restore - 1, "{finding:#?}");
        assert_eq!(finding.code, FindingCode::SignalFrame);
    }
}

/// A thread may be interrupted before the system call, and in code beside the trampoline.
#[test]
fn all_rows_of_a_trampolines_entry_are_judged() {
    let rows = |own: &str, behind: &str| {
        let source = trampoline(&format!(".cfi_signal_frame\n{CONTEXT}"), "");
        let source = source.replace("syscall\n", &format!("{own}\nat: syscall\n{behind}\n"));
        check(&source, "at")
    };
    // rbx at rsp+136, rip at rsp+160.
    for wrong in [
        ".cfi_escape 0x10, 3, 3, 0x77, 0x88, 1",
        ".cfi_escape 0x10, 16, 3, 0x77, 0xa0, 1",
    ] {
        let (found, at) = rows(wrong, "");
        let places: Vec<_> = found.iter().map(|it| (it.address.0, it.code)).collect();
        assert_eq!(places, [(at, FindingCode::SignalFrame)], "{found:#?}");
    }
    assert!(rows("", "").0.is_empty());
    // The rows of another function's signal frame do not count as those of the trampoline.
    let (found, _) = rows(
        "",
        "before: push %rbx\n.cfi_def_cfa %rsp, 8\nnop\njmp before\n",
    );
    assert!(!found.is_empty());
}

#[test]
fn a_load_from_a_fixed_address_may_be_a_saved_stack_pointer() {
    let source = "
        .globl f
        .type f, @function
f:      .cfi_startproc
        push %rbx
        .cfi_def_cfa_offset 16
        .cfi_offset %rbx, -16
        mov %rsp, kept(%rip)
        mov kept(%rip), %rcx
        .cfi_def_cfa %rcx, 16
        mov %edi, %eax
        mov %rcx, %rsp
        .cfi_def_cfa_register %rsp
        pop %rbx
        .cfi_def_cfa_offset 8
        .cfi_restore %rbx
last:   ret
        .cfi_endproc
        .size f, . - f
        .local kept
        .comm kept, 8, 8
";
    let (found, _) = check(source, "last");
    assert!(!found.is_empty());
    let worst = found.iter().map(|finding| finding.severity).max();
    assert_eq!(worst, Some(Severity::Unproven), "{found:#?}");
}

/// A function that stores its old stack pointer, until then in `%rax`, at an index, and loads it
/// from there again, with something between.
fn kept_at_an_index(index: &str, between: &str) -> String {
    format!(
        "
        .globl f
        .type f, @function
f:      .cfi_startproc
        mov %rsp, %rax
        .cfi_def_cfa_register %rax
        sub $512, %rsp
        {index}
        mov %rax, 8(%rsp,%r9,8)
        .cfi_escape 0x0f, 0x0a, 0x77, 0x08, 0x79, 0x00, 0x38, 0x1e, 0x22, 0x06, 0x23, 0x08
        xor %eax, %eax
        {between}
last:   mov 8(%rsp,%r9,8), %rsp
        .cfi_def_cfa %rsp, 8
        ret
        .cfi_endproc
        .size f, . - f
"
    )
}

#[test]
fn indexed_slots_last_until_a_possible_overwrite() {
    const COMPUTED: &str = "lea 2(%rdi), %r9d";
    let worst = |index, between| {
        let (found, _) = check(&kept_at_an_index(index, between), "last");
        found.iter().map(|finding| finding.severity).max()
    };
    for (index, between) in [
        (COMPUTED, ""),
        (COMPUTED, "mov %rcx, (%rsp)"),
        (COMPUTED, "mov %rcx, (%rsp,%r9,8)"),
        (COMPUTED, "mov %rcx, 8(%rsp,%rbx,8)"),
        (COMPUTED, "mov $4, %edx; mov %rcx, 8(%rsp,%rdx,8)"),
        (COMPUTED, "1: mov %rcx, (%rsp,%rdx,8)\n dec %rdx\n jnz 1b"),
        ("mov $3, %r9d", "mov %rcx, 24(%rsp)"),
    ] {
        assert_eq!(worst(index, between), None, "{index}; {between}");
    }
    for (index, between) in [
        (COMPUTED, "movq $0, 8(%rsp,%r9,8)"),
        (COMPUTED, "mov %ecx, 8(%rsp,%r9,8)"),
        (COMPUTED, "movups %xmm0, (%rsp,%r9,8)"),
        (COMPUTED, "lock xadd %rcx, 8(%rsp,%r9,8)"),
        (COMPUTED, "mov %rcx, 24(%rsp)"),
        (COMPUTED, "call g"),
        (COMPUTED, "inc %r9"),
        (COMPUTED, "test %edi, %edi\n je 1f\n mov %rcx, %r9\n 1:"),
    ] {
        let worst = worst(index, between);
        assert_eq!(worst, Some(Severity::Unproven), "{index}; {between}");
    }
    let overwritten = worst("mov $3, %r9d", "mov %rcx, 32(%rsp)");
    assert_eq!(overwritten, Some(Severity::Refuted));
}

#[test]
fn memory_below_an_indexed_slot_is_unknown() {
    let source = "
        .globl f
        .type f, @function
f:      .cfi_startproc
        push %rbx
        .cfi_def_cfa_offset 16
        .cfi_offset %rbx, -16
        mov %rcx, %rbx
        mov %rbp, 8(%rsp,%rdi,8)
        mov (%rsp,%rdi,8), %rbx
        .cfi_restore %rbx
last:   add $8, %rsp
        .cfi_def_cfa_offset 8
        ret
        .cfi_endproc
        .size f, . - f
";
    let (found, _) = check(source, "last");
    let worst = found.iter().map(|finding| finding.severity).max();
    assert_eq!(worst, Some(Severity::Unproven), "{found:#?}");
}

#[test]
fn a_word_that_was_saved_twice_has_two_names() {
    let source = |between: &str| {
        format!(
            "
        .globl f
        .type f, @function
f:      .cfi_startproc
        push %rbp
        .cfi_def_cfa_offset 16
        .cfi_offset %rbp, -16
        mov %rsp, %rbp
        .cfi_def_cfa_register %rbp
        mov %rsp, %rcx
        push %rcx
        push %rcx
        and $-16, %rsp
        {between}
        .cfi_escape 0x0f, 5, 0x77, 8, 6, 0x23, 0x10
last:   nop
        .cfi_def_cfa %rbp, 16
        leave
        .cfi_def_cfa %rsp, 8
        .cfi_restore %rbp
        ret
        .cfi_endproc
        .size f, . - f
"
        )
    };
    let (found, _) = check(&source(""), "last");
    assert!(found.is_empty(), "{found:#?}");
    // The CFA is a multiple of 16, and so is the address 32 below: the alignment there changes
    // nothing.
    let (found, _) = check(&source("movq $0, -16(%rbp)"), "last");
    assert!(found.is_empty(), "{found:#?}");
    let (found, last) = check(&source("movq $0, -8(%rbp)"), "last");
    assert!(found.iter().any(|it| it.address.0 == last), "{found:#?}");
}

#[test]
fn agreements_of_one_function_do_not_apply_to_another() {
    let source = "
        .globl f
        .type f, @function
f:      .cfi_startproc
        lea 16(%rsp), %rbp
rebuilt:
        ret
        .cfi_endproc
        .size f, . - f
        .globl g
        .type g, @function
g:      .cfi_startproc
        .cfi_val_offset %rbp, 8
        ret
        .cfi_endproc
        .size g, . - g
";
    let (found, rebuilt) = check(source, "rebuilt");
    let is_refuted = |it: &Finding| it.address.0 == rebuilt && it.severity == Severity::Refuted;
    assert!(found.iter().any(is_refuted), "{found:#?}");
}

/// A function between its first directive and its size.
fn function(body: &str) -> String {
    format!(".globl f\n.type f, @function\nf: .cfi_startproc\n{body}.cfi_endproc\n.size f, . - f\n")
}

/// A value left in a slot below the stack pointer does not help a caller with a changed register.
#[test]
fn a_return_with_a_lost_register_is_reported() {
    let source = |restore: &str| {
        function(&format!(
            "push %rbx\n.cfi_adjust_cfa_offset 8\n.cfi_offset %rbx, -16\nxor %ebx, %ebx\n{restore}\n.cfi_adjust_cfa_offset -8\nback: ret\n"
        ))
    };
    let (found, _) = check(&source("pop %rbx"), "back");
    assert!(found.is_empty(), "{found:#?}");
    let (found, back) = check(&source("add $8, %rsp"), "back");
    let messages: Vec<_> = found
        .iter()
        .map(|it| (it.code, it.severity, it.address.0, it.fix.clone()))
        .collect();
    let expected = (
        FindingCode::PrivateConvention,
        Severity::Refuted,
        back,
        None,
    );
    assert_eq!(messages, [expected]);
    // By a private convention.
    let agreed = source("add $8, %rsp").replace("back:", ".cfi_undefined %rbx\nback:");
    let (found, _) = check(&agreed, "back");
    assert!(found.is_empty(), "{found:#?}");
}

/// The kernel writes a signal frame below the red zone.
#[test]
fn registers_saved_below_the_red_zone_are_unproven() {
    let source = |at: i32| {
        let slot = at - 8;
        function(&format!(
            "mov %rbx, {at}(%rsp)\n.cfi_offset %rbx, {slot}\nsaved: xor %ebx, %ebx\nmov {at}(%rsp), %rbx\n.cfi_restore %rbx\nret\n"
        ))
    };
    let (found, _) = check(&source(-128), "saved");
    assert!(found.is_empty(), "{found:#?}");
    let (found, saved) = check(&source(-136), "saved");
    let messages: Vec<_> = found
        .iter()
        .map(|it| (it.code, it.severity, it.address.0))
        .collect();
    let expected = (FindingCode::SavedElsewhere, Severity::Unproven, saved);
    assert_eq!(messages, [expected], "{found:#?}");
    assert!(
        found[0]
            .hint
            .is_some_and(|hint| hint.to_string().contains("128 bytes")),
        "{found:#?}"
    );
}

/// After the restore, with the frame gone, a directive must say so.
#[test]
fn a_restore_from_below_the_red_zone_needs_a_directive() {
    let body = "sub $400, %rsp\n.cfi_adjust_cfa_offset 400\nmov %rbx, (%rsp)\n.cfi_offset %rbx, -408\nxor %ebx, %ebx\nmov (%rsp), %rbx\nadd $400, %rsp\n.cfi_adjust_cfa_offset -400\nback: ret\n";
    let (found, back) = check(&function(body), "back");
    let messages: Vec<_> = found
        .iter()
        .map(|it| (it.address.0, it.fix.as_deref()))
        .collect();
    assert_eq!(messages, [(back, Some(".cfi_restore %rbx"))], "{found:#?}");
}

/// A debugger resumes after a breakpoint; padding is not code.
#[test]
fn code_behind_a_breakpoint_is_judged() {
    let source = |adjust: &str, padding: &str| {
        function(&format!(
            "push %rax\n{adjust}\nint3\nbehind: pop %rax\n.cfi_def_cfa_offset 8\nret\n{padding}"
        ))
    };
    let right = ".cfi_adjust_cfa_offset 8";
    let (found, _) = check(&source(right, "int3\nint3\n"), "behind");
    assert!(found.is_empty(), "{found:#?}");
    let late = source("", "").replace("behind:", ".cfi_adjust_cfa_offset 24\nbehind:");
    let (found, behind) = check(&late, "behind");
    let is_behind = |it: &Finding| it.code == FindingCode::CfaOffset && it.address.0 == behind;
    assert!(found.iter().any(is_behind), "{found:#?}");
}

/// The only fault may be the rule for the caller's stack pointer.
#[test]
fn stack_pointer_rules_have_their_own_message() {
    let (found, _) = check(&function(".cfi_offset %rsp, -8\nat: ret\n"), "at");
    let messages: Vec<_> = found.iter().map(Finding::message).collect();
    assert_eq!(messages, ["the caller's rsp is cfa, and declared [cfa-8]"]);
}

/// If the outermost frame is not declared, all other faults follow from that.
#[test]
fn undeclared_entry_points_are_reported_once() {
    let source = "
        .globl _start
        .type _start, @function
_start: .cfi_startproc
        mov %rsp, %rdi
        and $-16, %rsp
aligned: call f
        hlt
        .cfi_endproc
        .size _start, . - _start
";
    let (found, _) = check(source, "aligned");
    let codes: Vec<_> = found.iter().map(|it| it.code).collect();
    assert_eq!(codes, [FindingCode::Outermost], "{found:#?}");
}

/// A function, assembled with these directives and instructions.
fn named(name: &str, body: &str) -> String {
    format!(
        "\t.globl {name}\n\t.type {name}, @function\n{name}:\t.cfi_startproc\n{body}\n\t.cfi_endproc\n\t.size {name}, . - {name}\n"
    )
}

/// A run shows it: behind a call of a function that changes `rbx`, the caller's `rbx` is gone. It
/// does not matter how deep that function is, by which jumps control gets there, and in which order
/// they stand in the file (corpus: `*_loses_register`).
#[test]
fn a_register_that_a_function_of_the_file_changes_is_gone_for_its_callers() {
    let changes = "xor %ebx, %ebx\n .cfi_undefined %rbx\n";
    let saved = named(
        "f",
        "push %rbx
        .cfi_adjust_cfa_offset 8
        .cfi_offset %rbx, -16
        call g
        pop %rbx
        .cfi_adjust_cfa_offset -8
        .cfi_restore %rbx
behind: ret",
    );
    let trusting = named("f", "call g\nbehind: ret");
    let chain = |depth: usize, is_deepest_first: bool| {
        let name = |level: usize| match level {
            0 => "g".to_owned(),
            level => format!("g{level}"),
        };
        let call = |level| {
            named(
                &name(level),
                &format!("call {}\n.cfi_undefined %rbx\nret", name(level + 1)),
            )
        };
        let mut functions: Vec<String> = (0..depth).map(call).collect();
        functions.push(named(&name(depth), &format!("{changes} ret")));
        if is_deepest_first {
            functions.reverse();
        }
        functions.concat()
    };
    let with = |body: &str| named("g", body) + &named("h", &format!("{changes} ret"));
    let mut callees: Vec<String> = (0..12)
        .chain([200])
        .map(|depth| chain(depth, false))
        .collect();
    callees.extend((0..12).chain([200]).map(|depth| chain(depth, true)));
    callees.extend([
        named("g", &format!("{changes} jmp elsewhere")),
        named("g", &format!("{changes} jmp *%rax")),
        named("g", &format!("{changes} jmp *8(%rdi)")),
        with("xor %eax, %eax\njmp h"),
        with("test %edi, %edi\nje h\nret"),
        with("lea h(%rip), %rax\njmp *%rax"),
        // Control falls through.
        with("inc %eax"),
        // Recursion.
        with("dec %edi\njs 1f\ncall g\n.cfi_undefined %rbx\nret\n1: jmp h"),
    ]);
    for callee in callees {
        let (right, _) = report(&(saved.clone() + &callee), "behind");
        assert!(right.findings.is_empty(), "{callee}: {:#?}", right.findings);
        assert_eq!(right.totals.proven, right.totals.rows, "{callee}");
        let (wrong, behind) = report(&(trusting.clone() + &callee), "behind");
        let refuted = wrong.findings.iter().map(|it| (it.address.0, it.severity));
        let refuted: Vec<_> = refuted.collect();
        assert_eq!(refuted, [(behind, Severity::Refuted)], "{callee}");
    }
}

/// The same where a push and a jump call the function.
#[test]
fn a_register_is_gone_behind_a_call_by_jump() {
    let caller = |row: &str| {
        let body = format!(
            "lea behind(%rip), %rax\npush %rax\n.cfi_adjust_cfa_offset 8\njmp g\n.cfi_adjust_cfa_offset -8\n{row}\nbehind: ret"
        );
        named("f", &body) + &named("g", "xor %ebx, %ebx\n.cfi_undefined %rbx\nret")
    };
    let (right, _) = check(&caller(".cfi_undefined %rbx"), "behind");
    assert!(right.is_empty(), "{right:#?}");
    let (wrong, behind) = check(&caller(""), "behind");
    let refuted: Vec<_> = wrong.iter().map(|it| (it.address.0, it.severity)).collect();
    assert_eq!(refuted, [(behind, Severity::Refuted)], "{wrong:#?}");
}

/// A function of the file may write to its caller's frame, where a register is saved: by itself, by
/// a jump or by a call.
#[test]
fn a_word_that_a_function_of_the_file_writes_in_its_callers_frame_is_not_known() {
    let caller = named(
        "f",
        "push %rbx
        .cfi_adjust_cfa_offset 8
        .cfi_offset %rbx, -16
        sub $8, %rsp
        .cfi_adjust_cfa_offset 8
        call g
behind: add $8, %rsp
        .cfi_adjust_cfa_offset -8
        pop %rbx
        .cfi_adjust_cfa_offset -8
        .cfi_restore %rbx
        ret",
    );
    let inner = |at: u32| named("h", &format!("movq $0, {at}(%rsp)\nret"));
    let frame = "sub $8, %rsp\n.cfi_adjust_cfa_offset 8\ncall h\nadd $8, %rsp\n.cfi_adjust_cfa_offset -8\nret";
    for (callee, is_written) in [
        (named("g", "movq $0, 16(%rsp)\nret"), true),
        (named("g", "movb $0, 20(%rsp)\nret"), true),
        (named("g", "movups %xmm0, 8(%rsp)\nret"), true),
        (named("g", "movq $0, 8(%rsp)\nret"), false),
        // The return address, and what is above it.
        (named("g", "movq $0, 24(%rsp)\nret"), true),
        (named("g", "movq $0, 32(%rsp)\nret"), false),
        (named("g", "jmp h") + &inner(16), true),
        (named("g", frame) + &inner(32), true),
        (named("g", frame) + &inner(24), false),
    ] {
        let (found, behind) = check(&(caller.clone() + &callee), "behind");
        let is_found = found.iter().any(|it| it.address.0 >= behind);
        assert_eq!(is_found, is_written, "{callee}: {found:#?}");
    }
}

/// The same where it is not known what the callee has left: a value of unknown origin, or one of
/// several functions in an entry.
#[test]
fn callers_of_functions_that_may_change_a_register_are_unproven() {
    let trusting = named("f", "call g\nbehind: ret");
    for callee in [
        named("g", "mov 8(%rdi), %rbx\n.cfi_undefined %rbx\nret"),
        named("g", "call *%rdi\njmp h")
            + &named("h", "mov 8(%rdi), %rbx\n.cfi_undefined %rbx\nret"),
        // A word is left on the stack, and the frame pointer is set.
        named(
            "g",
            "pop %rax\n.cfi_adjust_cfa_offset -8\n.cfi_register %rip, %rax\npush %rbp\n.cfi_adjust_cfa_offset 8\nmov %rsp, %rbp\n.cfi_undefined %rbp\njmp *%rax",
        ),
        named("whole", "ret\ng: xor %ebx, %ebx\n.cfi_undefined %rbx\nret"),
    ] {
        let (found, behind) = report(&(trusting.clone() + &callee), "behind");
        let is_there = |it: &Finding| it.address.0 == behind;
        assert!(
            found.findings.iter().any(is_there),
            "{callee}: {:#?}",
            found.findings
        );
    }
    // A call inside the entry, and the caller of that.
    let nested = "call inner\n.cfi_undefined %rbx\nret\n.cfi_restore %rbx\ninner: xor %ebx, %ebx\n.cfi_undefined %rbx\nret";
    let (found, _) = report(&(trusting + &named("g", nested)), "behind");
    assert!(!found.findings.is_empty());
    let wrong = nested.replacen(".cfi_undefined %rbx\nret\n.cfi_restore %rbx", "at: ret", 1);
    let (found, at) = report(&named("g", &wrong), "at");
    assert!(
        found.findings.iter().any(|it| it.address.0 == at),
        "{:#?}",
        found.findings
    );
}

/// What is wrong at a join of two heights: a loop, a call that may not return, or a branch.
#[test]
fn a_join_of_two_heights_says_which_path_has_more() {
    let cause = |body: &str| {
        let (found, _) = check(&function(&format!("{body}\nat: ret\n")), "at");
        let differs = |it: &&Finding| it.code == FindingCode::HeightsDiffer;
        let finding = found.iter().find(differs).expect("the heights differ");
        (
            finding.hint.expect("it has a cause").to_string(),
            finding.remedy(),
        )
    };
    let (hint, remedy) = cause("again: push %rax\n.cfi_def_cfa_offset 16\ndec %edi\njnz again");
    assert!(
        hint.starts_with("control comes back from 0x") && hint.contains(" 8 bytes more "),
        "{hint}"
    );
    assert!(
        remedy.contains("give back what was pushed since here"),
        "{remedy}"
    );
    let (hint, _) = cause("test %edi, %edi\nje over\npush %rax\n.cfi_def_cfa_offset 16\nover: nop");
    assert_eq!(
        hint,
        "the CFA is rsp+8 on the first path, and rsp+16 on the second"
    );
    let (hint, remedy) =
        cause("test %edi, %edi\nje over\npush %rax\n.cfi_def_cfa_offset 16\ncall *%rsi\nover: nop");
    assert!(
        hint.starts_with("one path leads over the call at 0x"),
        "{hint}"
    );
    assert!(remedy.contains("write ud2 after it"), "{remedy}");
}

/// A function that returns to its caller has one in each row from which control gets to the return
/// (corpus: `outermost_in_the_middle`).
#[test]
fn a_function_that_returns_is_not_outermost() {
    let body = "sub $8, %rsp\n.cfi_adjust_cfa_offset 8\n.cfi_offset %rip, -8\nadd $8, %rsp\n.cfi_adjust_cfa_offset -8\nret\n";
    let (found, f) = check(&function(&format!(".cfi_undefined %rip\n{body}")), "f");
    let places: Vec<_> = found.iter().map(|it| (it.address.0, it.code)).collect();
    assert_eq!(places, [(f, FindingCode::ReturnAddress)], "{found:#?}");
    assert!(check(&function(body), "f").0.is_empty());
    let middle = |end: &str| {
        format!(
            "test %edi, %edi\nje child\nret\nchild: xor %ebp, %ebp\n.cfi_undefined %rbp\n.cfi_undefined %rip\ninc %eax\n{end}"
        )
    };
    let signal = middle("ret\n").replace(
        ".cfi_undefined %rip",
        ".cfi_signal_frame\n.cfi_undefined %rip",
    );
    assert!(!check(&function(&signal), "f").0.is_empty());
    let exit = "mov $60, %eax\nsyscall\n";
    assert!(check(&function(&middle(exit)), "f").0.is_empty());
    for end in [
        "ret\n",
        "call *%rdi\nnop\nret\n",
        "pop %rcx\njmp *%rcx\n",
        "jne f\nhlt\n",
    ] {
        let (found, child) = check(&function(&middle(end)), "child");
        let is_there = |it: &Finding| {
            it.severity == Severity::Refuted
                && it.code == FindingCode::ReturnAddress
                && it.address.0.abs_diff(child) <= 4
        };
        assert!(found.iter().any(is_there), "{end}: {found:#?}");
    }
}

/// A signal's frame is written below the red zone, however a row finds the slot: by an offset, by an
/// expression (`DW_CFA_expression rbx, DW_OP_breg7`), or from a CFA of its own.
#[test]
fn no_rule_finds_slots_below_the_red_zone() {
    let findings = |offset: i64, rule: &str| {
        let body = format!(
            "mov %rbx, {offset}(%rsp)\n{rule}\nxor %ebx, %ebx\nat: mov {offset}(%rsp), %rbx\n.cfi_restore %rbx\nret\n"
        );
        check(&function(&body), "at").0.len()
    };
    let escape = |low: u8, high: u8| format!(".cfi_escape 0x10, 3, 3, 0x77, {low:#x}, {high:#x}");
    assert_eq!(findings(-104, ".cfi_offset %rbx, -112"), 0);
    assert_eq!(findings(-104, &escape(0x98, 0x7f)), 0);
    assert!(findings(-200, ".cfi_offset %rbx, -208") > 0);
    assert!(findings(-200, &escape(0xb8, 0x7e)) > 0);
    // The caller's stack pointer: DW_CFA_val_expression rsp, DW_OP_breg7 8.
    let own = |offset: i64| {
        format!(
            ".cfi_escape 0x16, 7, 2, 0x77, 8\n.cfi_def_cfa %rsp, 0\n.cfi_offset %rip, 0\n.cfi_offset %rbx, {offset}"
        )
    };
    assert_eq!(findings(-104, &own(-104)), 0);
    assert!(findings(-200, &own(-200)) > 0);
}

/// A mask is wrong in half of all calls: each bit of a stack address may be set, from the fifth, as
/// the CFA is a multiple of 16, to the forty-seventh (corpus: `cfa_with_masked_bit`).
#[test]
fn expressions_that_mask_bits_of_the_stack_pointer_are_evaluated_with_and_without_them() {
    for bit in 4..47 {
        let number = |value: u64| {
            let bytes = value.to_le_bytes().map(|byte| format!("{byte:#x}"));
            bytes.join(", ")
        };
        // cfa = (rsp+8) | mask, & ~mask, ^ mask: DW_OP_breg7 8, DW_OP_const8u, the operation
        let (set, clear) = (number(1 << bit), number(!(1 << bit)));
        for (mask, operation) in [(&set, 0x21), (&clear, 0x1a), (&set, 0x27)] {
            let text =
                format!(".cfi_escape 0x0f, 12, 0x77, 8, 0x0e, {mask}, {operation:#x}\nat: ret\n");
            let (found, _) = check(&function(&text), "at");
            let refuted = found.iter().filter(|it| it.severity == Severity::Refuted);
            assert!(refuted.count() > 0, "{bit} {operation:#x}: {found:#?}");
        }
    }
}
