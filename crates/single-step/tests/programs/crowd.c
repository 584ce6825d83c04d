// Threads that call the same functions at the same time.
#include <pthread.h>
#include <stdlib.h>

enum { MEMBERS = 200, THREADS = 4 };
extern int (*members[MEMBERS])(int);

int one_more(int number) {
    return number + 1;
}

static pthread_barrier_t all;
static void *calls(void *unused) {
    for (int i = 0; i < MEMBERS; i++) {
        if (i % 8 == 0)
            pthread_barrier_wait(&all);
        for (int turn = 0; turn < 4; turn++)
            if (members[i](turn) != turn + 1)
                exit(1);
    }
    return unused;
}

int main(void) {
    pthread_t ids[THREADS];
    pthread_barrier_init(&all, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&ids[i], NULL, calls, NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_join(ids[i], NULL);
    return 0;
}
