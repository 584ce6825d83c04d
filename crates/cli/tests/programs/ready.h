// Every test program calls this when it is ready to be inspected.
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

// Prints "ready", and allows processes other than its parents to trace it under Yama. Sets an
// alarm, which ends the program in any case.
static inline void ready(void)
{
    alarm(600);
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    puts("ready");
    fflush(stdout);
}

// Waits for a signal, in the calling function's frame.
static inline __attribute__((always_inline)) long pause_here(void)
{
#ifdef __aarch64__
    register long number __asm__("x8") = SYS_ppoll;
    register long first __asm__("x0") = 0, second __asm__("x1") = 0, third __asm__("x2") = 0,
                        fourth __asm__("x3") = 0;
    __asm__ volatile("svc #0" : "+r"(first) : "r"(number), "r"(second), "r"(third), "r"(fourth) : "memory");
    return first;
#else
    long result = SYS_pause;
    __asm__ volatile("syscall" : "+a"(result)::"rcx", "r11", "memory");
    return result;
#endif
}
