// Functions that align the stack more than the ABI does, and so find their caller's frame
// through a saved copy of its stack pointer. Compiled with -mstackrealign, all others do too.
// The innermost waits, unless there is an argument.
#include <alloca.h>
#include <stdarg.h>
#include <string.h>
#include "ready.h"

#define KEPT __attribute__((noinline, noclone))

static volatile long sink;
static int returns;

static KEPT void innermost(char *at)
{
    sink += at[0];
    if (returns)
        return;
    ready();
    for (;;)
        pause();
}

KEPT void aligned(long a, long b, long c)
{
    volatile char __attribute__((aligned(64))) buffer[64];
    buffer[0] = (char)(a * b - c);
    buffer[1] = 0;
    innermost((char *)buffer);
    sink += a + b + c;
}

KEPT void aligned_and_variable(long size)
{
    volatile char __attribute__((aligned(128))) buffer[128];
    char *more = alloca((size_t)size);
    memset(more, 1, (size_t)size);
    buffer[0] = more[size - 1];
    aligned(buffer[0], size, 3);
    sink += buffer[0];
}

KEPT void variadic(int count, ...)
{
    long __attribute__((aligned(256))) sum[4] = { 0 };
    va_list list;
    va_start(list, count);
    for (int i = 0; i < count; i++)
        sum[i % 4] += va_arg(list, long);
    va_end(list);
    aligned_and_variable(sum[0] + 100);
    sink += sum[1];
}

int main(int count, char **arguments)
{
    (void)arguments;
    returns = count > 1;
    variadic(9, 1L, 2L, 3L, 4L, 5L, 6L, 7L, 8L, 9L);
    return 0;
}
