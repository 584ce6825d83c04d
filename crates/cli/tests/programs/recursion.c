// recursion DEPTH: waits DEPTH calls deep, in three functions with frames of different sizes
// that call each other; with a second argument, returns from there.
#include <stdlib.h>
#include "ready.h"

#define KEPT __attribute__((noinline, noclone))

static volatile long sink;
static int returns;

// Every frame has its own values in the callee-saved registers, and so saves its caller's.
#define USE_REGISTERS(value) \
    __asm__ volatile("mov %0, %%rbx; lea 1(%0), %%r12; lea 2(%0), %%r13; lea 3(%0), %%r14;" \
                     "lea 4(%0), %%r15" ::"r"(value) : "rbx", "r12", "r13", "r14", "r15")
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
