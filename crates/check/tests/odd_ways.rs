//! Code that is come to on odd ways, and data between instructions: what is there is judged, and data is no code that nothing leads to.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test"
)]

use std::num::NonZeroUsize;
use std::process::Command;

use unspool_check::{Code, Declarations, Finding, Maker, Report, Subject};
use unspool_module::{ElfFile, Symbols};

/// A function that jumps over a table into the middle of what its bytes decode as: the table ends with a prefix and an opcode
/// that has eight bytes behind it.
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

/// The findings of a source, and the address of a label.
fn check(source: &str, label: &str) -> (Vec<Finding>, u64) {
    let folder = tempfile::tempdir().unwrap();
    let [input, object] = ["f.s", "f.o"].map(|name| folder.path().join(name));
    std::fs::write(&input, source).unwrap();
    let mut assembler = Command::new("as");
    assembler.arg(&input).arg("-o").arg(&object);
    let status = assembler.status().expect("install binutils");
    assert!(status.success());
    let file = ElfFile::from_bytes(&object, std::fs::read(&object).unwrap()).unwrap();
    let declarations = Declarations::read(&file).unwrap();
    let mut subject = Subject::new(&file, &declarations, Maker::of(&file)).unwrap();
    let findings = Report::of(&mut subject, NonZeroUsize::MIN, |_, _| {}).findings;
    let symbols = Symbols::new(&file, None);
    let label = symbols.named(label).next().unwrap();
    (findings, label.address.0)
}

#[test]
fn code_behind_a_jump_table_is_judged() {
    let (found, _) = check(&source("jmp *%rax", ".cfi_adjust_cfa_offset"), "subtracted");
    assert!(found.is_empty(), "{found:#?}");
    let (found, subtracted) = check(&source("jmp *%rax", "#"), "subtracted");
    assert!(
        found
            .iter()
            .any(|it| it.code == Code::CfaOffset && it.at.0 == subtracted),
        "{found:#?}"
    );
}

#[test]
fn code_behind_data_that_is_jumped_over_is_judged() {
    let (found, subtracted) = check(&source("jmp first", "#"), "subtracted");
    assert!(
        found
            .iter()
            .any(|it| it.code == Code::CfaOffset && it.at.0 == subtracted),
        "{found:#?}"
    );
}

/// The jump into the middle of an instruction leaves the way through all of it alone: glibc jumps over `lock`.
#[test]
fn a_jump_over_a_prefix_is_no_data() {
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
    let found: Vec<_> = found.iter().map(|it| (it.code, it.at.0)).collect();
    assert_eq!(found, [(Code::CfaOffset, wrong)]);
}

/// A call over the string whose address it asks for.
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
    let found: Vec<_> = found.iter().map(|it| (it.code, it.at.0)).collect();
    assert!(found.contains(&(Code::CfaOffset, popped)), "{found:x?}");
}

/// A jump behind the push of an address is a call that comes back there.
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
    let found: Vec<_> = found.iter().map(|it| (it.code, it.at.0)).collect();
    assert!(found.contains(&(Code::CfaOffset, back)), "{found:x?}");
    let right = source.replace("1:", ".cfi_adjust_cfa_offset -8\n1:");
    let (found, _) = check(&right, "back");
    assert!(found.is_empty(), "{found:#?}");
}

/// The mark of the outermost frame says that nobody called.
#[test]
fn the_outermost_frame_does_not_return() {
    let source = "
        .globl f
        .type f, @function
f:      .cfi_startproc
        .cfi_undefined %rip
        lea 1(%rdi), %eax
back:   ret
        .cfi_endproc
        .size f, . - f
";
    let (found, back) = check(source, "back");
    let found: Vec<_> = found.iter().map(|it| (it.code, it.at.0)).collect();
    assert_eq!(found, [(Code::ReturnAddress, back)]);
    let (found, _) = check(&source.replace("ret\n", "ud2\n"), "back");
    assert!(found.is_empty(), "{found:#?}");
}
