// Threads that wait in signal handlers: below a system call, below a raise, on an alternative
// stack, one handler inside another, where the first instruction of a function faulted, where
// a null pointer was called, and in the vDSO.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "ready.h"

#define KEPT __attribute__((noinline, noclone))

static pthread_barrier_t all;
static volatile long sink;

// `faults` starts with an instruction that faults; the code before it belongs to a function
// that never returns, which a lookup of the address before the fault would find.
void faults(void);
#ifdef __aarch64__
#define STOPS \
    "  stp x29, x30, [sp, #-16]!\n" \
    "  .cfi_def_cfa_offset 16\n" \
    "  .cfi_offset x29, -16\n" \
    "  .cfi_offset x30, -8\n" \
    "  bl abort\n"
#define FAULTS "  udf #0\n"
#else
#define STOPS \
    "  pushq %rbx\n" \
    "  .cfi_def_cfa_offset 16\n" \
    "  .cfi_offset rbx, -16\n" \
    "  call abort\n"
#define FAULTS "  ud2\n"
#endif
__asm__(".text\n"
        ".type stops, %function\n"
        "stops: .cfi_startproc\n"
        STOPS
        "  .cfi_endproc\n"
        ".size stops, .-stops\n"
        ".type faults, %function\n"
        "faults: .cfi_startproc\n"
        FAULTS
        "  ret\n"
        "  .cfi_endproc\n"
        ".size faults, .-faults\n");

static KEPT void wait_for_ever(void)
{
    pthread_barrier_wait(&all);
    for (;;)
        pause();
}

static KEPT void on_signal(int number)
{
    sink += number;
    wait_for_ever();
}

static KEPT void outer_handler(int number, siginfo_t *info, void *context)
{
    sink += number + info->si_code + (context != NULL);
    raise(SIGUSR1);
    sink++;
}

static void handle(int number, int flags, void (*handler)(int))
{
    struct sigaction action = { .sa_flags = flags, .sa_handler = handler };
    sigaction(number, &action, NULL);
}

static KEPT void raises(int number, long a, long b)
{
    sink += a * b;
    raise(number);
    sink += a - b;
}

static void *interrupted_in_call(void *unused)
{
    sigset_t set;
    sigfillset(&set);
    sigdelset(&set, SIGUSR1);
    // Blocked until now, the signal arrives while the thread is in the system call.
    sigsuspend(&set);
    sink++;
    return unused;
}

static void *below_raise(void *unused)
{
    raises(SIGUSR1, 3, 4);
    sink++;
    return unused;
}

static void use_other_stack(void)
{
    stack_t other = { .ss_size = 65536, .ss_sp = malloc(65536) };
    sigaltstack(&other, NULL);
}

static void *on_other_stack(void *unused)
{
    use_other_stack();
    raises(SIGUSR2, 5, 6);
    sink++;
    return unused;
}

static KEPT void *at_first_instruction(void *unused)
{
    use_other_stack();
    faults();
    sink++;
    return unused;
}

static KEPT void *null_call(void *unused)
{
    void (*volatile nowhere)(void) = NULL;
    nowhere();
    sink++;
    return unused;
}

// Faults in the kernel's vDSO, which the C library calls. It has the coarse clock on every
// machine.
static KEPT void *in_vdso(void *unused)
{
    clock_gettime(CLOCK_REALTIME_COARSE, (struct timespec *)16);
    sink++;
    return unused;
}

int main(void)
{
    sigset_t set;
    pthread_t threads[6];
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    handle(SIGUSR1, SA_RESTART, on_signal);
    handle(SIGUSR2, SA_ONSTACK | SA_SIGINFO, (void (*)(int))outer_handler);
    handle(SIGILL, SA_ONSTACK | SA_SIGINFO, (void (*)(int))outer_handler);
    handle(SIGSEGV, SA_NODEFER, on_signal);
    pthread_barrier_init(&all, NULL, 7);
    pthread_create(&threads[0], NULL, interrupted_in_call, NULL);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    pthread_create(&threads[1], NULL, below_raise, NULL);
    pthread_create(&threads[2], NULL, on_other_stack, NULL);
    pthread_create(&threads[3], NULL, at_first_instruction, NULL);
    pthread_create(&threads[4], NULL, null_call, NULL);
    pthread_create(&threads[5], NULL, in_vdso, NULL);
    pthread_kill(threads[0], SIGUSR1);
    pthread_barrier_wait(&all);
    ready();
    pthread_join(threads[0], NULL);
}
