// Threads each of which starts its successor and ends, without end. Thread ids are soon used
// again. Their stacks are bounded: on a busy machine threads take longer to end than to start, and
// there would be ever more of them.
#include <pthread.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

static void *start_successor(void *attributes)
{
    pthread_t thread;
    while (pthread_create(&thread, attributes, start_successor, attributes))
        ;
    return NULL;
}

int main(void)
{
    struct rlimit memory = { 64 << 20, 64 << 20 };
    setrlimit(RLIMIT_AS, &memory);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 1 << 16);
    for (int i = 0; i < 128; i++)
        start_successor(&attributes);
    puts("ready");
    fflush(stdout);
    for (;;)
        pause();
}
