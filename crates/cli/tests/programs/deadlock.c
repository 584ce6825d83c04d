// deadlock: two threads wait for each other's mutex. Prints the thread ID of each, then "ready"
// when both wait.
#define _GNU_SOURCE
#include <pthread.h>
#include "ready.h"

static pthread_mutex_t mutexes[2] = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER };
static pthread_barrier_t both_hold;

static void *both(void *first)
{
    long own = (long)first;
    pthread_mutex_lock(&mutexes[own]);
    printf("%ld %d\n", own, gettid());
    pthread_barrier_wait(&both_hold);
    pthread_mutex_lock(&mutexes[1 - own]);
    return NULL;
}

int main(void)
{
    pthread_t threads[2];
    setvbuf(stdout, NULL, _IOLBF, 0);
    pthread_barrier_init(&both_hold, NULL, 3);
    for (long own = 0; own < 2; own++)
        pthread_create(&threads[own], NULL, both, (void *)own);
    pthread_barrier_wait(&both_hold);
    ready();
    pthread_join(threads[0], NULL);
}
