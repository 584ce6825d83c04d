/* Two threads deep in calls, for a core file. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_barrier_t barrier;
static volatile int sink;

__attribute__((noinline)) int descend(int depth) {
    volatile char *bytes = __builtin_alloca(16 + 8 * (depth % 5));
    bytes[0] = 1;
    if (depth > 0)
        return descend(depth - 1) + bytes[0];
    pthread_barrier_wait(&barrier);
    pause();
    return bytes[0];
}

static void *other(void *argument) {
    sink = descend(9);
    return argument;
}

static int compare(const void *a, const void *b) {
    abort();
}

int main(void) {
    pthread_t thread;
    int numbers[] = {2, 1};
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_create(&thread, NULL, other, NULL);
    pthread_barrier_wait(&barrier);
    qsort(numbers, 2, sizeof *numbers, compare);
    return 0;
}
