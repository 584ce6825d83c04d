/* Waits below a function that keeps its caller's rbx not on the stack but in a variable, as its
   table says by the address in r12. */
#include <stdio.h>
#include <unistd.h>

void keeper(void);
long slot;

__attribute__((noinline, noclone)) void waits(void)
{
    puts("ready");
    fflush(stdout);
    for (;;)
        pause();
}

__asm__(".text\n"
        ".globl keeper\n"
        ".type keeper, @function\n"
        "keeper:\n"
        ".cfi_startproc\n"
        "push %r12\n"
        ".cfi_adjust_cfa_offset 8\n"
        ".cfi_offset r12, -16\n"
        "lea slot(%rip), %r12\n"
        "mov %rbx, (%r12)\n"
        /* DW_CFA_expression, rbx: DW_OP_breg12 0 */
        ".cfi_escape 0x10, 3, 2, 0x7c, 0\n"
        "mov $0x5555, %ebx\n"
        "call waits\n"
        "mov (%r12), %rbx\n"
        ".cfi_restore rbx\n"
        "pop %r12\n"
        ".cfi_adjust_cfa_offset -8\n"
        ".cfi_restore r12\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size keeper, . - keeper\n");

int main(void)
{
    __asm__ volatile("mov $0x1234, %%ebx; call keeper" ::: "rbx", "rax", "rcx", "rdx", "rsi", "rdi",
                     "r8", "r9", "r10", "r11", "memory", "cc");
    return 0;
}
