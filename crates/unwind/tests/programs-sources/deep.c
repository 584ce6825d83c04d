/* Waits as many calls deep as its argument says. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((noinline, noclone)) static long deep(long depth)
{
    volatile long here[12] = { depth };
    if (depth == 0) {
        puts("ready");
        fflush(stdout);
        for (;;)
            pause();
    }
    return deep(depth - 1) + here[depth % 12];
}

int main(int count, char **arguments)
{
    return count > 1 && deep(atol(arguments[1])) == 1;
}
