// handled DEPTH: waits in a signal handler on an alternate stack, DEPTH calls above `main`. The
// handler returns by a trampoline without a table, placed directly after a function with one.
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include "ready.h"

#define KEPT __attribute__((noipa))

static volatile long sink;

// In the kernel's layout.
struct action {
    void (*handler)(int);
    unsigned long flags;
    void (*restorer)(void);
    unsigned long mask;
};

void restorer(void);

#ifdef __aarch64__
#define MAKES_FRAME "sub sp, sp, #4096\n"
#define RETURNS "mov x8, #139; svc #0\n"
#else
#define MAKES_FRAME "sub $4096, %rsp\n"
#define RETURNS "mov $15, %rax; syscall\n"
#endif

// The row of the last byte before the trampoline differs from a correct row for the trampoline.
__asm__(".text\n"
        ".type before, %function\n"
        "before:\n"
        ".cfi_startproc\n"
        MAKES_FRAME
        ".cfi_adjust_cfa_offset 4096\n"
        ".long 0\n"
        ".cfi_endproc\n"
        ".size before, . - before\n"
        ".globl restorer\n"
        ".type restorer, %function\n"
        "restorer:\n"
        RETURNS
        ".size restorer, . - restorer\n");

static KEPT void on_signal(int number)
{
    ready();
    for (;;)
        sink += pause() + number;
}

static KEPT long descend(long depth, volatile long *at)
{
    volatile long buffer[20] = { depth };
    if (depth == 0)
        return *at;
    return descend(depth - 1, at) + buffer[depth % 20];
}

int main(int count, char **arguments)
{
    enum { SIZE = 65536, RESTORER = 0x04000000 };
    stack_t stack = { .ss_sp = malloc(SIZE), .ss_size = SIZE };
    struct action action = { on_signal, SA_ONSTACK | RESTORER, restorer, 0 };
    sigaltstack(&stack, NULL);
    syscall(SYS_rt_sigaction, SIGSEGV, &action, NULL, 8);
    sink = descend(count > 1 ? atol(arguments[1]) : 0, (long *)8);
    return 0;
}
