// Threads that wait below library code: in a comparison function of qsort, the constructor
// of a library that is being loaded, a coroutine, a signal handler on a coroutine's stack, the
// destructor of a thread's data, and (the first thread) a function that exit runs.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <ucontext.h>
#include "ready.h"

#define KEPT __attribute__((noinline, noclone))

static pthread_barrier_t all;
static pthread_key_t key;
static volatile long sink;
static const char *library;

// The library calls it too.
KEPT void wait_for_ever(void)
{
    pthread_barrier_wait(&all);
    for (;;)
        pause();
}

static KEPT int compare(const void *a, const void *b)
{
    wait_for_ever();
    return *(const int *)a - *(const int *)b;
}

static void *in_qsort(void *unused)
{
    int values[] = { 5, 2, 8, 1, 9, 3 };
    qsort(values, 6, sizeof *values, compare);
    sink += values[0];
    return unused;
}

static void *in_constructor(void *unused)
{
    sink += dlopen(library, RTLD_NOW) != NULL;
    return unused;
}

static KEPT void coroutine(int number)
{
    if (number)
        raise(SIGUSR1);
    wait_for_ever();
    sink++;
}

static void *in_coroutine(void *number)
{
    ucontext_t own, other;
    getcontext(&other);
    other.uc_stack.ss_size = 65536;
    other.uc_stack.ss_sp = malloc(65536);
    other.uc_link = &own;
    makecontext(&other, (void (*)(void))coroutine, 1, (int)(long)number);
    swapcontext(&own, &other);
    sink++;
    return NULL;
}

static void on_signal(int number)
{
    sink += number;
    wait_for_ever();
}

static KEPT void destroy(void *value)
{
    sink += value != NULL;
    wait_for_ever();
}

static void *ends(void *unused)
{
    pthread_setspecific(key, &key);
    return unused;
}

static KEPT void at_exit(void)
{
    pthread_barrier_wait(&all);
    ready();
    for (;;)
        pause();
}

int main(int count, char **arguments)
{
    void *(*runs[])(void *) = { in_qsort, in_constructor, in_coroutine, in_coroutine, ends };
    if (count < 2)
        return 1;
    library = arguments[1];
    signal(SIGUSR1, on_signal);
    pthread_key_create(&key, destroy);
    pthread_barrier_init(&all, NULL, 6);
    for (long i = 0; i < 5; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, runs[i], (void *)(i == 3 ? 1L : 0L)))
            return 1;
    }
    atexit(at_exit);
    return 0;
}
