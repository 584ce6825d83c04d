/* Waits as many calls deep as its argument says. */
#include <alloca.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Only who runs the code can tell what the frame pointer is then, and the stack pointer is anywhere. */
#ifdef OPAQUE
static void *kept;
#define HIDE_FRAME() \
    __asm__ volatile("mov %%rbp, %0; mov %0, %%rbp" : "+m"(kept) : "r"(alloca((size_t)depth % 7 + 1)))
#else
#define HIDE_FRAME()
#endif

__attribute__((noinline, noclone)) static long deep(long depth)
{
    volatile long here[12] = { depth };
    HIDE_FRAME();
    if (depth == 0) {
        puts("ready");
        fflush(stdout);
        for (;;)
            pause();
    }
    long result = deep(depth - 1);
    /* Nor does the code that follows show its caller. */
    HIDE_FRAME();
    return result + here[depth % 12];
}

int main(int count, char **arguments)
{
    return count > 1 && deep(atol(arguments[1])) == 1;
}
