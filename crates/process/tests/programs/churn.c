// Threads that start threads that end at once, without end.
#include <pthread.h>
#include <stdio.h>

static void *end_at_once(void *unused)
{
    return unused;
}

static void *start_threads(void *unused)
{
    for (;;) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, end_at_once, NULL) == 0)
            pthread_join(thread, NULL);
    }
    return unused;
}

int main(void)
{
    pthread_t thread;
    for (int i = 0; i < 3; i++)
        pthread_create(&thread, NULL, start_threads, NULL);
    puts("ready");
    fflush(stdout);
    start_threads(NULL);
}
