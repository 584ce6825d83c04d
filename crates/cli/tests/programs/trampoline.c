// Waits in a signal handler. Linked with musl, whose code has no tables, so the waiting is done
// here.
#include <signal.h>
#include "ready.h"

#define KEPT __attribute__((noipa))

static volatile long sink;

static KEPT void on_signal(int number)
{
    ready();
    for (;;) {
        sink += pause_here() + number;
    }
}

static KEPT long faults(long a, volatile long *at)
{
    long b = a * 3;
    return *at + b;
}

int main(int count, char **arguments)
{
    (void)arguments;
    signal(SIGSEGV, on_signal);
    sink = faults(count, (long *)8);
    return 0;
}
