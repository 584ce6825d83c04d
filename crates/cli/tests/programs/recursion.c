// recursion DEPTH: waits DEPTH calls deep, in three functions with frames of different sizes
// that call each other.
#include <stdlib.h>
#include "ready.h"

#define KEPT __attribute__((noinline, noclone))

static volatile long sink;
static KEPT long small(long depth, long value);

static KEPT long variable(long depth, long value)
{
    volatile char buffer[value % 64 + 1];
    buffer[0] = (char)value;
    return small(depth - 1, value + 7) + buffer[0];
}

static KEPT long large(long depth, long value)
{
    volatile long buffer[40];
    buffer[value % 40] = depth;
    return variable(depth - 1, value * 3 % 1000) + buffer[value % 40];
}

static KEPT long small(long depth, long value)
{
    if (depth <= 0) {
        ready();
        for (;;)
            pause();
    }
    return large(depth - 1, value + 1) ^ value;
}

int main(int count, char **arguments)
{
    sink = small(count > 1 ? atol(arguments[1]) : 0, count);
    return 0;
}
