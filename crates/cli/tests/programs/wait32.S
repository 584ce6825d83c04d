/* A 32-bit program: prints "ready" (write is system call 4) and waits forever (pause is 29). */
        .globl _start
_start:
        movl    $4, %eax
        movl    $1, %ebx
        movl    $text, %ecx
        movl    $6, %edx
        int     $0x80
1:      movl    $29, %eax
        int     $0x80
        jmp     1b
        .section .rodata
text:   .ascii  "ready\n"
        .section .note.GNU-stack, "", @progbits
