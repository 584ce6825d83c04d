// crash HOW [THREADS]: fails in the last of THREADS threads, the others blocked in read or
// spinning.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *how;
static int ends[2];
static volatile long spins;

static void caught(int number)
{
    _exit(number == SIGSEGV ? 42 : 43);
}

static __attribute__((noinline)) void fail(void)
{
    if (!strcmp(how, "segv"))
        *(volatile int *)0x123450 = 1;
    if (!strcmp(how, "noncanonical"))
        *(volatile int *)0x1234567812345678 = 1;
    if (!strcmp(how, "abort"))
        abort();
    if (!strcmp(how, "trap"))
        __builtin_trap();
    if (!strcmp(how, "term")) {
        // Any thread may get it.
        kill(getpid(), SIGTERM);
        for (;;)
            pause();
    }
    if (!strcmp(how, "realtime"))
        raise(SIGRTMIN + 3);
    if (!strcmp(how, "handled")) {
        signal(SIGSEGV, caught);
        *(volatile int *)0x123450 = 1;
    }
    if (!strcmp(how, "ignored")) {
        signal(SIGTERM, SIG_IGN);
        kill(getpid(), SIGTERM);
        kill(getpid(), SIGCHLD);
        exit(5);
    }
    if (!strcmp(how, "exec")) {
        execl("/proc/self/exe", "crash", "segv", "3", NULL);
        exit(10);
    }
    if (!strcmp(how, "child")) {
        int status;
        pid_t child = fork();
        if (child == 0)
            abort();
        waitpid(child, &status, 0);
        exit(WIFSIGNALED(status) ? 6 : 7);
    }
    if (!strcmp(how, "vfork-child")) {
        int status = system("kill -SEGV $$");
        exit(WIFSIGNALED(status) ? 8 : 9);
    }
    exit(1);
}

static void *run(void *number)
{
    char byte;
    if ((long)number == 1)
        fail();
    if ((long)number % 2)
        for (;;)
            spins++;
    return read(ends[0], &byte, 1) < 0 ? NULL : number;
}

int main(int argc, char **argv)
{
    long threads = argc > 2 ? atol(argv[2]) : 1;
    how = argc > 1 ? argv[1] : "";
    if (pipe(ends))
        return 1;
    for (long i = threads; i > 1; i--) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, run, (void *)(i - 1)))
            return 1;
        usleep(1000);
    }
    if (threads == 1)
        fail();
    run((void *)0);
}
