// Waits in a part of a function that the compiler moved away, because it leads to a rarely called
// function.
#include <stdlib.h>
#include "ready.h"

#define KEPT __attribute__((noipa))

static volatile long sink;
static volatile int done;

static __attribute__((cold, noipa)) long rare(long a, long b)
{
    ready();
    while (!done)
        pause();
    return a - b;
}

KEPT long parted(long a, long b, long c, char *text)
{
    long x = a * b, y = b * c, z = a + c;
    char buffer[128];
    for (int i = 0; i < 100; i++)
        buffer[i] = text[i % 5];
    if (__builtin_expect(buffer[4] == 'y', 0)) {
        x += rare(x, y);
        z *= rare(y, z);
        sink += z;
    }
    sink += buffer[x % 100];
    return x + y + z + a + b + c;
}

int main(int count, char **arguments)
{
    (void)arguments;
    sink += parted(count, 5, 6, "ready");
    return 0;
}
