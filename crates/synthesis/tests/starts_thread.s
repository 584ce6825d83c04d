# Starts a thread, with 16 bytes on the stack. The new thread calls a function and exits.
        .globl  _start
_start:
        sub     $16, %rsp
        mov     $56, %eax
        syscall
        .globl  behind_call
behind_call:
        test    %rax, %rax
        .globl  behind_test
behind_test:
        js      2f
        .globl  behind_branch
behind_branch:
        jz      1f
        add     $16, %rsp
        ret
1:      xor     %ebp, %ebp
        pop     %rdi
        call    *%r9
        xor     %eax, %eax
        mov     $60, %al
        syscall
        hlt
2:      neg     %eax
        add     $16, %rsp
        ret
        .section .note.GNU-stack, "", @progbits
