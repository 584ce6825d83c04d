// threads N BYTES: N threads, each with BYTES of stack filled with its own pattern, then
// blocked in pause(). Prints "ready" when all are on their way there.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <alloca.h>
#include <sys/prctl.h>

static size_t bytes;
static pthread_barrier_t all;

static __attribute__((noinline)) void block(long number)
{
    volatile char *fill = alloca(bytes);
    memset((char *)fill, (int)number, bytes);
    pthread_barrier_wait(&all);
    if (number == 0) {
        puts("ready");
        fflush(stdout);
    }
    for (;;)
        pause();
}

static void *run(void *number)
{
    char name[16];
    snprintf(name, sizeof name, "worker-%ld", (long)number);
    prctl(PR_SET_NAME, name);
    block((long)number);
    return NULL;
}

int main(int argc, char **argv)
{
    long threads = argc > 1 ? atol(argv[1]) : 1;
    bytes = argc > 2 ? (size_t)atol(argv[2]) : 16;
    pthread_barrier_init(&all, NULL, (unsigned)threads);
    for (long i = 1; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, run, (void *)i))
            return 1;
    }
    block(0);
}
