/* A 32-bit program that waits for ever (pause is system call 29), or crashes when it is given
   an argument. */
        .globl _start
_start:
        cmpl    $1, (%esp)
        jne     2f
1:      movl    $29, %eax
        int     $0x80
        jmp     1b
2:      ud2
        .section .note.GNU-stack, "", @progbits
