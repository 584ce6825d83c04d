// crash HOW: three threads, of which the second ends the program in one of several ways.
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define KEPT __attribute__((noipa))

static pthread_barrier_t all;
static const char *how;
static sigjmp_buf back;
static volatile long sink;

static KEPT void touches(volatile int *at)
{
    *at = 1;
    sink++;
}

static KEPT long overflows(long depth)
{
    volatile char buffer[4096];
    buffer[depth % 4096] = (char)depth;
    return overflows(depth + 1) + buffer[depth % 4096];
}

static KEPT void calls(void (*function)(void))
{
    function();
    sink++;
}

// Loses its own way back: neither the stack nor a register has it any more.
static KEPT void smashes(void)
{
    volatile char buffer[16];
    volatile char *at = buffer;
    for (int i = 0; i < 256; i++)
        *at++ = 0x5a;
}

static void on_signal(int number)
{
    sink += number;
    siglongjmp(back, 1);
}

static KEPT void handles(void)
{
    signal(SIGSEGV, on_signal);
    if (sigsetjmp(back, 1) == 0)
        touches((int *)16);
    exit(3);
}

static KEPT void ends(void)
{
    if (!strcmp(how, "segv"))
        touches((int *)0x123450);
    else if (!strcmp(how, "abort"))
        abort();
    else if (!strcmp(how, "overflow"))
        sink += overflows(0);
    else if (!strcmp(how, "null"))
        calls(NULL);
    else if (!strcmp(how, "data"))
        calls((void (*)(void))&sink);
    else if (!strcmp(how, "nowhere"))
        calls((void (*)(void))0x1234567890);
    else if (!strcmp(how, "smash"))
        smashes();
    else if (!strcmp(how, "handled"))
        handles();
    else if (!strcmp(how, "kill"))
        kill(getpid(), SIGKILL);
    else
        exit(atoi(how));
    sink++;
}

static void *waits(void *unused)
{
    pthread_barrier_wait(&all);
    for (;;)
        pause();
    return unused;
}

static void *crashes(void *unused)
{
    pthread_barrier_wait(&all);
    ends();
    return unused;
}

int main(int count, char **arguments)
{
    pthread_t threads[2];
    how = count > 1 ? arguments[1] : "0";
    puts("from the program");
    fflush(stdout);
    pthread_barrier_init(&all, NULL, 3);
    pthread_create(&threads[0], NULL, crashes, NULL);
    pthread_create(&threads[1], NULL, waits, NULL);
    waits(NULL);
}
