// Every test program calls this when it is ready to be inspected.
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

// Prints "ready", and allows processes other than its parents to trace it under Yama. Sets an
// alarm, which ends the program in any case.
static inline void ready(void)
{
    alarm(120);
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    puts("ready");
    fflush(stdout);
}
