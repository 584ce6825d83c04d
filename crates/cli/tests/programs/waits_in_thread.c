// Waits in two threads. Linked with musl, whose code has no tables, so the waiting is done here.
#include <pthread.h>
#include "ready.h"

#define KEPT __attribute__((noipa))

static volatile long sink;

static KEPT void waits(void)
{
    for (;;) {
        sink += pause_here();
    }
}

static KEPT void calls(void)
{
    waits();
    sink++;
}

static void *in_thread(void *data)
{
    calls();
    return data;
}

int main(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, in_thread, NULL) != 0)
        return 1;
    ready();
    calls();
    return 0;
}
