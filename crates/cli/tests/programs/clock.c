// Reads the time, which the kernel's vDSO returns without a system call.
#include <time.h>

static volatile long sink;

__attribute__((noipa)) void asks(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    sink += time.tv_nsec;
}

int main(void)
{
    for (;;)
        asks(CLOCK_MONOTONIC);
}
