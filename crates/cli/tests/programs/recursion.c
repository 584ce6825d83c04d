// recursion DEPTH: waits DEPTH calls deep, in three functions with frames of different sizes
// that call each other; with a second argument, returns from there.
#include <stdlib.h>
#include "ready.h"

#define KEPT __attribute__((noinline, noclone))

static volatile long sink;
static int returns;

// Every frame has its own values in the callee-saved registers, and so saves its caller's.
#ifdef __aarch64__
#define USE_REGISTERS(value) \
    __asm__ volatile("mov x19, %0; add x20, x19, #1; add x21, x19, #2; add x22, x19, #3;" \
                     "add x23, x19, #4; add x24, x19, #5; add x25, x19, #6; add x26, x19, #7;" \
                     "add x27, x19, #8; add x28, x19, #9; fmov d8, x19; fmov d9, x20; fmov d10, x21;" \
                     "fmov d11, x22; fmov d12, x23; fmov d13, x24; fmov d14, x25; fmov d15, x26" \
                     ::"r"(value) : "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", \
                       "x28", "d8", "d9", "d10", "d11", "d12", "d13", "d14", "d15")
#else
#define USE_REGISTERS(value) \
    __asm__ volatile("mov %0, %%rbx; lea 1(%0), %%r12; lea 2(%0), %%r13; lea 3(%0), %%r14;" \
                     "lea 4(%0), %%r15" ::"r"(value) : "rbx", "r12", "r13", "r14", "r15")
#endif
static KEPT long small(long depth, long value);

static KEPT long variable(long depth, long value)
{
    volatile char buffer[value % 64 + 1];
    USE_REGISTERS(depth);
    buffer[0] = (char)value;
    return small(depth - 1, value + 7) + buffer[0];
}

static KEPT long large(long depth, long value)
{
    volatile long buffer[40];
    USE_REGISTERS(value);
    buffer[value % 40] = depth;
    return variable(depth - 1, value * 3 % 1000) + buffer[value % 40];
}

static KEPT long small(long depth, long value)
{
    if (depth <= 0 && returns)
        return value;
    if (depth <= 0) {
        ready();
        for (;;)
            pause();
    }
    USE_REGISTERS(depth + value);
    return large(depth - 1, value + 1) ^ value;
}

int main(int count, char **arguments)
{
    returns = count > 2;
    sink = small(count > 1 ? atol(arguments[1]) : 0, count);
    return 0;
}
