//! False rows of code declared as a compiler's, which the verifier would accept if they were true.

use crate::common::{assembled, report_of};
use unspool_check::{CodeOrigin, RowTotals};

/// The totals for a source as if a compiler had made it.
fn totals(source: &str) -> RowTotals {
    report_of(&assembled(source), CodeOrigin::Compiler).totals
}

/// A function with a frame pointer and `rbx` saved, and 40,000 bytes below.
fn with_large_frame(body: &str) -> String {
    function(&format!(
        "
        push %rbp
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset rbp, 0
        mov %rsp, %rbp
        .cfi_def_cfa_register rbp
        push %rbx
        .cfi_offset rbx, -24
        sub $40000, %rsp
        xor %ebx, %ebx
        {body}
        mov -8(%rbp), %rbx
        leave
        .cfi_def_cfa rsp, 8
        .cfi_restore rbp
        .cfi_restore rbx
        ret"
    ))
}

/// A function that continues at `1:` on a path that its second half does not expect, with `rbx` not
/// saved.
fn with_indirect_jump(jump: &str) -> String {
    function(&format!(
        "
        test %edi, %edi
        jne 2f
        {jump}
2:      push %rbx
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset rbx, 0
1:      nop
        pop %rbx
        .cfi_adjust_cfa_offset -8
        .cfi_restore rbx
        ret
        .section .data.rel.ro, \"aw\"
pointer: .quad 1b
        .text"
    ))
}

fn function(body: &str) -> String {
    format!(
        "
        .globl f
        .type f, @function
f:      .cfi_startproc
        {body}
        .cfi_endproc
        .size f, . - f
"
    )
}

#[test]
fn false_rows_are_not_proven() {
    let loaded_in_the_first_round = "
        push %rbx
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset rbx, 0
        xor %ebx, %ebx
        mov %rsp, %rax
1:      mov (%rax), %rbx
        .cfi_restore rbx
        nop
        .cfi_rel_offset rbx, 0
        mov %rdi, %rax
        dec %esi
        jne 1b
        pop %rbx
        .cfi_adjust_cfa_offset -8
        .cfi_restore rbx
        ret";
    let called_over_the_return_address = "
        .cfi_undefined rbp
        mov %rsp, %rbp
        .cfi_def_cfa rbp, 8
        add $32, %rsp
        call g
        nop
        mov %rbp, %rsp
        .cfi_def_cfa rsp, 8
        ud2";
    let exchanged = ".cfi_undefined rcx\n xadd %rcx, %rbx\n nop\n mov %rcx, %rbx\n ret";
    for (name, source) in [
        ("exchanged", function(exchanged)),
        ("loaded", function(loaded_in_the_first_round)),
        ("stored", with_large_frame("movq $0, 40000(%rsp)\n nop")),
        (
            "filled",
            with_large_frame("mov %rsp, %rdi\n mov $5001, %ecx\n rep stosq\n nop"),
        ),
        (
            "called",
            with_large_frame("add $40008, %rsp\n call g\n sub $8, %rsp"),
        ),
        ("returns", function(called_over_the_return_address)),
        (
            "popped",
            with_large_frame("add $40000, %rsp\n push %rbp\n pop %rsp\n call g\n nop"),
        ),
        (
            "constant",
            with_indirect_jump("lea 1f(%rip), %rax\n jmp *%rax"),
        ),
        ("pointer", with_indirect_jump("jmp *pointer(%rip)")),
    ] {
        let totals = totals(&source);
        assert!(totals.proven < totals.rows, "{name}: {totals:?}");
    }
}

/// The same without a fault.
#[test]
fn true_rows_are_proven() {
    for (name, source) in [
        ("stored", with_large_frame("movq $0, 39992(%rsp)\n nop")),
        ("called", with_large_frame("call g\n nop")),
        (
            "elsewhere",
            with_indirect_jump("lea g(%rip), %rax\n jmp *%rax"),
        ),
    ] {
        let totals = totals(&source);
        assert_eq!(totals.proven, totals.rows, "{name}: {totals:?}");
    }
}

/// An entry with more code than the file has.
#[test]
fn an_entry_of_everything() {
    for length in ["0x1000000000", "0xf000000000000000"] {
        let source = format!(
            "
f:      nop
        ret
        .section .eh_frame, \"a\", @progbits
cie:    .long fde - cie - 4, 0
        .byte 1
        .asciz \"zR\"
        .uleb128 1
        .sleb128 -8
        .uleb128 16, 1
        .byte 4, 0x0c, 7, 8, 0x90, 1
        .balign 4
fde:    .long end - fde - 4, fde + 4 - cie
        .quad 0, {length}
        .uleb128 0
        .balign 4
end:
"
        );
        let totals = totals(&source);
        assert_eq!((totals.rows, totals.proven), (1, 0), "{length}");
    }
}
