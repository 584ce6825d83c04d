//! Effects of single instructions on saves in the stack. A preserved save stays proven, one that
//! only a run decides is unproven, and an overwritten one is refuted.

use crate::common::{assembled, check, report_of};
use unspool_check::{CodeOrigin, Severity};

use Severity::{Refuted, Unproven};

/// The worst finding for a function that saves rbx above 16 bytes of its own and runs a body. The
/// next label is `behind`.
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
    let first = found.iter().min_by_key(|it| it.address)?;
    assert!(
        first.address.0 >= behind.saturating_sub(1),
        "{body}: {found:#?}"
    );
    found.iter().map(|it| it.severity).max()
}

/// Values kept in memory and registers meanwhile; the slot of rbx is `16(%rsp)`.
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
        ("shlq $1, 16(%rsp)", Some(Refuted)),
        // Undone later, or without an effect for some operands.
        ("negq 16(%rsp)", Some(Unproven)),
        ("notb 16(%rsp)", Some(Unproven)),
        ("rolq $8, 16(%rsp)", Some(Unproven)),
        ("adcq $0, 16(%rsp)", Some(Unproven)),
        ("orq %rcx, 16(%rsp)", Some(Unproven)),
        ("lock xadd %rcx, 16(%rsp)", Some(Unproven)),
        ("mov $5, %ecx; lock xadd %rcx, 16(%rsp)", Some(Refuted)),
        // Conditional writes.
        ("lock cmpxchg %rcx, 16(%rsp)", Some(Unproven)),
        ("vmovdqu64 %zmm0, (%rsp){%k1}", Some(Unproven)),
        ("vmaskmovps %ymm0, %ymm1, (%rsp)", Some(Unproven)),
        ("vmovdqu64 %zmm0, (%rsp)", Some(Refuted)),
        ("movups %xmm0, (%rsp)", None),
        ("movups %xmm0, 8(%rsp)", Some(Refuted)),
        // String instructions.
        ("mov %rsp, %rdi; stosq", None),
        ("lea 16(%rsp), %rdi; stosq", Some(Refuted)),
        ("mov %rsp, %rdi; mov $4, %ecx; rep stosl", None),
        ("mov %rsp, %rdi; mov $5, %ecx; rep stosl", Some(Refuted)),
        ("mov %rsp, %rdi; rep movsb", None),
        // What is stored may be the saved register.
        ("mov %rbx, %rax; lea 16(%rsp), %rdi; stosq", None),
        (
            "mov %rbx, %rax; mov %rsp, %rdi; mov $3, %ecx; rep stosq",
            Some(Unproven),
        ),
        ("lea 16(%rsp), %rsi; lea 16(%rsp), %rdi; movsq", None),
        (
            "lea 8(%rsp), %rsi; lea 16(%rsp), %rdi; movsq",
            Some(Refuted),
        ),
        (
            "lea 16(%rsp), %rsi; mov %rsp, %rdi; mov $3, %ecx; rep movsq",
            Some(Unproven),
        ),
        (
            "lea 16(%rsp), %rsi; lodsq; xor %ebx, %ebx; mov %rax, 16(%rsp)",
            None,
        ),
        ("mov %rsp, %rdi; stosq; stosq", None),
        ("mov %rsp, %rdi; stosq; stosq; stosq", Some(Refuted)),
        ("mov %rsp, %rdi; mov $2, %ecx; rep stosq; rep stosq", None),
        (
            "mov %rsp, %rdi; mov $2, %ecx; rep stosq; stosb",
            Some(Refuted),
        ),
        ("lea 8(%rsp), %rsi; lodsq; mov %rax, (%rsi)", Some(Refuted)),
        ("lea 8(%rsp), %rdi; cmpsq; mov %rax, (%rdi)", Some(Refuted)),
        ("lea 12(%rsp), %rdi; scasl; mov %rax, (%rdi)", Some(Refuted)),
        ("mov %rsp, %rdi; repne scasb; mov %rax, (%rdi)", None),
        // Segments that may begin at 0, and addresses of 32 bits.
        ("mov %rax, %gs:16(%rsp)", Some(Unproven)),
        ("mov %rax, %fs:8(%rsp)", None),
        ("mov %rax, %gs:16", None),
        ("mov %rax, 16(%esp)", Some(Unproven)),
        ("mov %rax, -8(%esp)", None),
        ("lea 16(%rsp), %rdi; stosl %eax, %es:(%edi)", Some(Unproven)),
        // Addresses without an operand.
        ("lea 8(%rsp), %rdi; maskmovdqu %xmm0, %xmm1", Some(Unproven)),
        ("mov %rsp, %rax; movdir64b (%rcx), %rax", Some(Refuted)),
        ("mov %rsp, %rax; clzero", Some(Unproven)),
        (
            "lea 16(%rsp), %rax; sub $64, %rax; movdir64b (%rcx), %rax",
            None,
        ),
        // By a number that only a run knows, in an array that does not reach there
        // (docs/checking.md, assumption 3), or by a known number.
        ("mov %edi, (%rsp,%rcx,4)", None),
        ("mov $6, %ecx; mov %edi, (%rsp,%rcx,4)", Some(Unproven)),
        ("mov $3, %ecx; mov %edi, (%rsp,%rcx,4)", None),
        ("mov %rsp, %rdx; mov $12, %ecx; mov %edi, (%rcx,%rdx)", None),
        (
            "mov %rsp, %rdx; mov $16, %ecx; mov %edi, (%rcx,%rdx)",
            Some(Unproven),
        ),
        // Bits at any index.
        ("btsq $1, 8(%rsp)", None),
        ("btsq %rdi, 8(%rsp)", Some(Unproven)),
        ("btq %rdi, 8(%rsp)", None),
        // Half of a slot.
        ("xor %rdi, 12(%rsp)", Some(Refuted)),
        ("xor %rdi, 8(%rsp)", None),
        ("xor %rdi, 16(%rsp)", Some(Unproven)),
        // Towards lower addresses.
        ("lea 8(%rsp), %rdi; std; stosq; cld", None),
        (
            "lea 24(%rsp), %rdi; mov $2, %ecx; std; rep stosq; cld",
            Some(Unproven),
        ),
        ("mov %rsp, %rdi; mov $2, %ecx; rep stosq", None),
        // The processor's state.
        ("fxsave (%rsp)", Some(Refuted)),
        ("fxsave64 (%rdi)", None),
        ("fnsave (%rsp)", Some(Refuted)),
        ("fnstenv -16(%rsp)", None),
        ("fnstenv (%rsp)", Some(Refuted)),
        ("xsave (%rsp)", Some(Unproven)),
        ("xsave64 (%rsp)", Some(Unproven)),
        ("xsaveopt (%rsp)", Some(Unproven)),
        ("xsaveopt64 (%rsp)", Some(Unproven)),
        ("xsavec (%rsp)", Some(Unproven)),
        ("xsavec64 (%rsp)", Some(Unproven)),
        ("xsaves (%rsp)", Some(Unproven)),
        ("xsaves64 (%rsp)", Some(Unproven)),
        ("xsave -808(%rsp)", Some(Unproven)),
        (
            "mov $7, %eax; xor %edx, %edx; xsave -808(%rsp)",
            Some(Unproven),
        ),
        ("mov $7, %eax; xor %edx, %edx; xsave -816(%rsp)", None),
        (
            "mov $0xe7, %eax; xor %edx, %edx; xsave -816(%rsp)",
            Some(Unproven),
        ),
        // VIA PadLock, which libgcrypt uses: a number of 16-byte blocks, and up to 8.
        ("mov %rsp, %rdi; mov $1, %ecx; rep xcryptecb", None),
        ("mov %rsp, %rdi; mov $2, %ecx; rep xcryptecb", Some(Refuted)),
        ("lea 8(%rsp), %rdi; xstore", None),
        ("lea 12(%rsp), %rdi; xstore", Some(Unproven)),
        // Rows of a matrix.
        ("tilestored %tmm0, -48(%rsp)", None),
        ("mov $1, %ecx; tilestored %tmm0, -64(%rsp,%rcx)", None),
        (
            "mov $64, %ecx; tilestored %tmm0, -64(%rsp,%rcx)",
            Some(Unproven),
        ),
        ("tilestored %tmm0, -1024(%rsp,%rcx)", Some(Unproven)),
        // Through untracked registers.
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

/// The worst finding for a function that saves rbx below the stack pointer and runs a body.
fn worst_below(body: &str) -> Option<Severity> {
    let source = format!(
        "
        .globl f
        .type f, @function
f:      .cfi_startproc
        mov %rbx, -16(%rsp)
        .cfi_offset %rbx, -24
        xor %ebx, %ebx
        {body}
behind: nop
        mov -16(%rsp), %rbx
        .cfi_restore %rbx
        ret
        .cfi_endproc
        .size f, . - f
"
    );
    let (found, _) = check(&source, "behind");
    found.iter().map(|it| it.severity).max()
}

/// A child that returns on the same stack pushes there, and so do callees. Signals do not.
#[test]
fn values_below_the_stack_pointer_last_until_a_push() {
    let cases = [
        ("mov $39, %eax; syscall", None),
        ("mov $58, %eax; syscall", Some(Unproven)),
        ("mov %edi, %eax; syscall", Some(Unproven)),
        // fork, by clone: with memory of its own.
        ("mov $57, %eax; syscall", None),
        ("int $0x80", Some(Unproven)),
        ("call g", Some(Refuted)),
        ("push %rdi; pop %rdi", None),
        ("push %rdi; push %rsi; pop %rsi; pop %rdi", Some(Refuted)),
        ("pushfq; pushfq; popfq; popfq", Some(Refuted)),
        ("push %rbp; enter $0, $2; leave; pop %rbp", Some(Refuted)),
    ];
    for (body, expected) in cases {
        let found = worst_below(body);
        // Missing CFI for pushes is reported, too.
        assert!(found >= expected, "{body}: {found:?}");
        let is_pushing = body.contains("push") || body.contains("call");
        assert!(is_pushing || found == expected, "{body}: {found:?}");
    }
    // A new stack, or memory of its own; another thread has another stack pointer, so no claims
    // follow.
    let clone = |arguments: &str| {
        let below = "mov $56, %eax; syscall; test %eax, %eax; je 1f; mov %rbp, %rsp";
        let source = format!(
            "
        .globl f
        .type f, @function
f:      .cfi_startproc
        push %rbp
        .cfi_def_cfa_offset 16
        .cfi_offset %rbp, -16
        mov %rsp, %rbp
        .cfi_def_cfa_register %rbp
        mov %rbx, -16(%rsp)
        .cfi_offset %rbx, -32
        xor %ebx, %ebx
        {arguments}
        {below}
behind: nop
        mov -16(%rbp), %rbx
        .cfi_restore %rbx
        pop %rbp
        .cfi_def_cfa %rsp, 8
        .cfi_restore %rbp
        ret
1:      .cfi_undefined %rip
        hlt
        .cfi_endproc
        .size f, . - f
"
        );
        let (found, _) = check(&source, "behind");
        found.iter().any(|it| it.subject.contains("rbx"))
    };
    assert!(clone("mov $0x4111, %edi; xor %esi, %esi"));
    assert!(clone("mov %rsi, %rdi; xor %esi, %esi"));
    assert!(!clone("mov $0x4011, %edi; xor %esi, %esi"));
    assert!(!clone("mov $0x4111, %edi; mov $0x7f0000, %esi"));
}

/// A store on one side of an alignment may be on the other, too: the slot of rbx is relative to the
/// CFA, that of r12 to the stack pointer.
#[test]
fn an_alignment_may_leave_no_room() {
    let worst = |store: &str| {
        let source = format!(
            "
        .globl f
        .type f, @function
f:      .cfi_startproc
        push %rbp
        .cfi_def_cfa_offset 16
        .cfi_offset %rbp, -16
        mov %rsp, %rbp
        .cfi_def_cfa_register %rbp
        push %rbx
        .cfi_offset %rbx, -24
        and $-64, %rsp
        sub $64, %rsp
        xor %ebx, %ebx
        {store}
behind: nop
        mov -8(%rbp), %rbx
        .cfi_restore %rbx
        leave
        .cfi_def_cfa %rsp, 8
        .cfi_restore %rbp
        ret
        .cfi_endproc
        .size f, . - f
"
        );
        let (found, _) = check(&source, "behind");
        found.iter().map(|it| it.severity).max()
    };
    for (store, expected) in [
        ("mov %rdi, 56(%rsp)", None),
        ("mov %rdi, 64(%rsp)", Some(Unproven)),
        ("fxsave (%rsp)", Some(Unproven)),
        ("mov $7, %eax; xor %edx, %edx; xsave (%rsp)", Some(Unproven)),
        ("mov %rdi, -16(%rbp)", None),
        ("mov %rdi, -8(%rbp)", Some(Refuted)),
    ] {
        assert_eq!(worst(store), expected, "{store}");
    }
}

/// A report names the functions with the assumption that stores stay inside arrays.
#[test]
fn it_is_said_where_stores_are_assumed_to_be_inside_arrays() {
    let report_with = |body: &str, origin: Option<CodeOrigin>| {
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
        xor %ebx, %ebx
        {body}
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
        let file = assembled(&source);
        report_of(
            &file,
            origin.unwrap_or_else(|| CodeOrigin::from_file(&file)),
        )
    };
    for origin in [None, Some(CodeOrigin::Compiler)] {
        for (body, is_assumed) in [
            ("mov %edi, (%rsp,%rcx,4)", true),
            ("mov %rdi, (%rsp,%rcx,8)", true),
            ("movb $0, (%rsp,%rcx)", true),
            ("lea (%rsp), %rdx; movb $0, (%rcx,%rdx)", true),
            ("lea (%rsp), %rdx; lock incw (%rdx,%rcx,2)", true),
            ("lea (%rsp), %rdi; rep stosb", true),
            ("vpscatterdd %zmm0, (%rsp,%zmm1){%k1}", true),
            ("mov (%rsp,%rcx,8), %rdi", false),
            ("mov %rdi, (%rdx,%rcx,8)", false),
            ("mov %rdi, (%rsp)", false),
        ] {
            let report = report_with(body, origin);
            let totals = report.totals;
            assert_eq!(totals.proven, totals.rows, "{body}: {:#?}", report.findings);
            let assuming = if is_assumed { totals.rows } else { 0 };
            assert_eq!(totals.assuming_bounds, assuming, "{body} {origin:?}");
            assert_eq!(
                report.functions_assuming_bounds.len(),
                usize::from(is_assumed),
                "{body}"
            );
        }
    }
}

/// rbx is declared unchanged behind the instructions.
#[test]
fn registers_that_are_changed_back_are_not_refuted() {
    let source = |body: &str| {
        format!(
            "
        .globl f
        .type f, @function
f:      .cfi_startproc
        .cfi_undefined %rbx
        {body}
        .cfi_same_value %rbx
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
            Some(Unproven),
        ),
        ("add $1, %rbx", Some(Refuted)),
        // Undone later, or without an effect for some operands.
        ("rol $8, %rbx; ror $8, %rbx", Some(Unproven)),
        ("xor %rcx, %rbx; xor %rcx, %rbx", Some(Unproven)),
        ("or %rcx, %rbx", Some(Unproven)),
        ("clc; adc $0, %rbx", Some(Unproven)),
        ("bsf %rcx, %rbx", Some(Unproven)),
        ("xchg %bl, %al; xchg %bl, %al", Some(Unproven)),
        ("rorx $8, %rbx, %rcx; rorx $56, %rcx, %rbx", Some(Unproven)),
        ("or $1, %rbx", Some(Refuted)),
        ("shl $1, %rbx", Some(Refuted)),
        ("sbb %rbx, %rbx", Some(Refuted)),
        ("setc %bl", Some(Refuted)),
        ("mov $1, %bl", Some(Refuted)),
        ("popcnt %rbx, %rbx", Some(Unproven)),
        // Both outcomes happen.
        ("cmovz %rcx, %rbx", Some(Refuted)),
        ("mov %rbx, %rax; cmovz %rax, %rbx", None),
        // Exchanges, and the old values back.
        ("mov $5, %ecx; xadd %rcx, %rbx", Some(Refuted)),
        ("mov $5, %ecx; xadd %rcx, %rbx; mov %rcx, %rbx", None),
        ("xadd %rcx, %rbx; sub %rcx, %rbx", Some(Unproven)),
        ("cmpxchg %rcx, %rbx", Some(Refuted)),
        ("mov %rbx, %rax; cmpxchg %rcx, %rbx; mov %rax, %rbx", None),
        (
            "mov %rbx, %rcx; xchg %rcx, -8(%rsp); xor %ebx, %ebx; mov -8(%rsp), %rbx",
            None,
        ),
        // Implicit operands.
        ("cpuid", Some(Refuted)),
        ("cmpxchg8b (%rdi)", None),
        ("cmpxchg16b (%rdi)", None),
        ("mulx %rdi, %rbx, %rcx", Some(Refuted)),
        // Copies by way of other registers and memory.
        ("lea (,%rbx,1), %rcx; xor %ebx, %ebx; mov %rcx, %rbx", None),
        (
            "movnti %rbx, -8(%rsp); xor %ebx, %ebx; mov -8(%rsp), %rbx",
            None,
        ),
        (
            "movbe %rbx, -8(%rsp); xor %ebx, %ebx; movbe -8(%rsp), %rbx",
            Some(Unproven),
        ),
        (
            "mov %rbx, %fs:16; xor %ebx, %ebx; mov %fs:16, %rbx",
            Some(Unproven),
        ),
        (
            "wrfsbase %rbx; xor %ebx, %ebx; rdfsbase %rbx",
            Some(Unproven),
        ),
        ("xor %ebx, %ebx; mov %fs:16, %rbx", Some(Refuted)),
        (
            "vpbroadcastq %rbx, %xmm16; xor %ebx, %ebx; vmovq %xmm16, %rbx",
            Some(Unproven),
        ),
        (
            "mov (%rdi), %rax; mov %rbx, (%rax); xor %ebx, %ebx; mov (%rax), %rbx",
            Some(Unproven),
        ),
        (
            "mov (%rdi), %rax; xor %ebx, %ebx; mov (%rax), %rbx",
            Some(Refuted),
        ),
    ];
    let mut wrong = Vec::new();
    for (body, expected) in cases {
        let (found, _) = check(&source(body), "behind");
        let worst = found.iter().map(|it| it.severity).max();
        if worst != expected {
            wrong.push((body, worst));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A push from memory and a pop into memory copy the word there.
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

/// A return that pops more than an address leaves the stack pointer above that.
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
        mov %rsp, %rdx
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
                .any(|it| it.address.0 == behind && it.severity == Refuted);
            assert!(is_there, "{how}: {found:#?}");
        }
    }
}

/// The CFA is a multiple of 16: memory below an aligned address is found from the CFA, as in
/// glibc's vector functions.
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
                .any(|it| it.address.0 == behind && it.severity == Refuted);
            assert_eq!(!is_refuted, is_right, "{below} {jump}: {found:#?}");
            assert_eq!(found.is_empty(), is_right, "{below} {jump}: {found:#?}");
        }
    }
}
