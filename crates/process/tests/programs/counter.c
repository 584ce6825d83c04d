// counter N: N threads that count without end. Prints the address of the counters.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static volatile unsigned long counters[64];

static void *count(void *number)
{
    for (;;)
        counters[(long)number]++;
    return NULL;
}

int main(int argc, char **argv)
{
    long threads = argc > 1 ? atol(argv[1]) : 1;
    for (long i = 1; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, count, (void *)i))
            return 1;
    }
    printf("%p\n", (void *)counters);
    fflush(stdout);
    count(0);
}
