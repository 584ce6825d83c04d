//! What single instructions do to what is saved on the stack: what the processor leaves as it is stays proven, what only a run tells is unproven, and
//! what is overwritten is refuted.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod common;

use common::check;
use unspool_check::Severity;

use Severity::{Refuted, Unproven};

/// The worst that is found of a function that saves rbx above 16 bytes of its own, and does something meanwhile. The next label is `behind`.
fn worst(body: &str) -> Option<Severity> {
    let source = format!(
        "
        .globl f
        .type f, @function
f:      .cfi_startproc
        push %rbx
        .cfi_adjust_cfa_offset 8
        .cfi_offset %rbx, -16
        sub $16, %rsp
        .cfi_adjust_cfa_offset 16
        {body}
behind: nop
        add $16, %rsp
        .cfi_adjust_cfa_offset -16
        pop %rbx
        .cfi_adjust_cfa_offset -8
        .cfi_restore %rbx
        ret
        .cfi_endproc
        .size f, . - f
"
    );
    let (found, behind) = check(&source, "behind");
    let first = found.iter().min_by_key(|it| it.at)?;
    assert!(first.at.0 >= behind.saturating_sub(1), "{body}: {found:#?}");
    found.iter().map(|it| it.severity).max()
}

/// What is kept in memory and in registers meanwhile; the slot of rbx is `16(%rsp)`.
#[test]
fn saved_registers_are_what_instructions_leave() {
    let cases = [
        // Fences and probes.
        ("lock orq $0, 16(%rsp)", None),
        ("lock addl $0, 16(%rsp)", None),
        ("andq $-1, 16(%rsp)", None),
        ("subb $0, 16(%rsp)", None),
        ("orq $1, 16(%rsp)", Some(Refuted)),
        ("andq $-2, 16(%rsp)", Some(Refuted)),
        ("lock incq 16(%rsp)", Some(Refuted)),
        // What may not write.
        ("lock cmpxchg %rcx, 16(%rsp)", Some(Unproven)),
        ("vmovdqu64 %zmm0, (%rsp){%k1}", Some(Unproven)),
        ("vmaskmovps %ymm0, %ymm1, (%rsp)", Some(Unproven)),
        ("vmovdqu64 %zmm0, (%rsp)", Some(Refuted)),
        ("movups %xmm0, (%rsp)", None),
        ("movups %xmm0, 8(%rsp)", Some(Refuted)),
        // Strings.
        ("mov %rsp, %rdi; stosq", None),
        ("lea 16(%rsp), %rdi; stosq", Some(Refuted)),
        ("mov %rsp, %rdi; mov $4, %ecx; rep stosl", None),
        ("mov %rsp, %rdi; mov $5, %ecx; rep stosl", Some(Refuted)),
        ("mov %rsp, %rdi; rep movsb", None),
        // Where no operand says the address.
        ("lea 8(%rsp), %rdi; maskmovdqu %xmm0, %xmm1", Some(Unproven)),
        ("mov %rsp, %rax; movdir64b (%rcx), %rax", Some(Refuted)),
        ("mov %rsp, %rax; clzero", Some(Unproven)),
        (
            "lea 16(%rsp), %rax; sub $64, %rax; movdir64b (%rcx), %rax",
            None,
        ),
        // By way of registers that are not followed.
        ("movq 16(%rsp), %xmm0; movq %xmm0, 16(%rsp)", Some(Unproven)),
        (
            "movups 8(%rsp), %xmm0; movups %xmm0, 8(%rsp)",
            Some(Unproven),
        ),
    ];
    for (body, expected) in cases {
        assert_eq!(worst(body), expected, "{body}");
    }
}

/// rbx is declared unchanged here.
#[test]
fn registers_that_are_changed_back_are_not_refuted() {
    let source = |body: &str| {
        format!(
            "
        .globl f
        .type f, @function
f:      .cfi_startproc
        {body}
behind: nop
        ret
        .cfi_endproc
        .size f, . - f
"
        )
    };
    let cases = [
        ("or %rbx, %rbx", None),
        ("and %rbx, %rbx", None),
        ("and $-1, %rbx", None),
        ("or %ebx, %ebx", Some(Refuted)),
        ("bswap %rbx; bswap %rbx", Some(Unproven)),
        (
            "mov %rbx, %rax; not %rax; not %rax; xor %ebx, %ebx; mov %rax, %rbx",
            Some(Refuted),
        ),
        ("add $1, %rbx", Some(Refuted)),
    ];
    for (body, expected) in cases {
        let (found, _) = check(&source(body), "behind");
        let worst = found.iter().map(|it| it.severity).max();
        assert_eq!(worst, expected, "{body}: {found:#?}");
    }
}

/// What is pushed from memory and popped into memory is copied there.
#[test]
fn memory_is_copied_by_a_push_and_a_pop() {
    let copy = |to: &str| {
        worst(&format!(
            "pushq 16(%rsp)
        .cfi_adjust_cfa_offset 8
        popq {to}
        .cfi_adjust_cfa_offset -8"
        ))
    };
    assert_eq!(copy("16(%rsp)"), None);
    assert_eq!(copy("8(%rsp)"), None);
    assert_eq!(copy("24(%rsp)"), Some(Refuted));
}

/// Returns that pop more than an address come back with the stack pointer above that.
#[test]
fn far_returns_pop_the_segment_and_returns_from_interrupts_all() {
    let source = |pushed: &[&str], how: &str, popped: usize| {
        let pushes = pushed
            .iter()
            .map(|what| format!("        push {what}\n        .cfi_adjust_cfa_offset 8\n"));
        format!(
            "
        .globl f
        .type f, @function
f:      .cfi_startproc
        lea 1f(%rip), %rax
{}        {how}
1:      .cfi_adjust_cfa_offset -{popped}
behind: nop
        ret
        .cfi_endproc
        .size f, . - f
",
            pushes.collect::<String>()
        )
    };
    let cases: [(&[&str], &str, usize); 4] = [
        (&["%rax"], "ret", 8),
        (&["$0x33", "%rax"], "lretq", 16),
        (&["%rcx", "%rcx", "$0x33", "%rax"], "lretq $16", 32),
        (&["$0x2b", "%rdx", "%rcx", "$0x33", "%rax"], "iretq", 40),
    ];
    for (pushed, how, popped) in cases {
        let (found, _) = check(&source(pushed, how, popped), "behind");
        assert!(found.is_empty(), "{how}: {found:#?}");
        // As if only the address was popped.
        if popped > 8 {
            let (found, behind) = check(&source(pushed, how, 8), "behind");
            let is_there = found
                .iter()
                .any(|it| it.at.0 == behind && it.severity == Refuted);
            assert!(is_there, "{how}: {found:#?}");
        }
    }
}

/// The CFA is a multiple of 16: what is below an aligned address is found from the CFA, as glibc's vector functions have it.
#[test]
fn the_stack_is_aligned_at_entry() {
    let source = |below: u8, jump: &str| {
        format!(
            "
        .globl f
        .type f, @function
f:      .cfi_startproc
        push %rbp
        .cfi_adjust_cfa_offset 8
        .cfi_offset %rbp, -16
        mov %rsp, %rbp
        .cfi_def_cfa_register %rbp
        and $-32, %rsp
        sub $64, %rsp
        {jump}
        mov %r12, 16(%rsp)
        # r12 = *(((cfa - below) & -32) - 48)
        .cfi_escape 0x10, 0x0c, 0x0f, 0x08, {below}, 0x1c, 0x0d, 0xe0, 0xff, 0xff, 0xff, 0x1a, 0x0d, 0xd0, 0xff, 0xff, 0xff, 0x22
behind: xor %r12d, %r12d
        mov 16(%rsp), %r12
        .cfi_restore %r12
        mov %rbp, %rsp
        pop %rbp
        .cfi_def_cfa %rsp, 8
        .cfi_restore %rbp
        ret
        .cfi_endproc
        .size f, . - f
"
        )
    };
    for jump in ["", "test %edi, %edi; je 2f; nop; 2:"] {
        for (below, is_right) in [(1, true), (8, true), (16, true), (17, false), (24, false)] {
            let (found, behind) = check(&source(below, jump), "behind");
            let is_refuted = found
                .iter()
                .any(|it| it.at.0 == behind && it.severity == Refuted);
            assert_eq!(!is_refuted, is_right, "{below} {jump}: {found:#?}");
            assert_eq!(found.is_empty(), is_right, "{below} {jump}: {found:#?}");
        }
    }
}
