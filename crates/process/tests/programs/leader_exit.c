// The first thread ends, the second goes on.
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static pthread_t first;

static void *outlive(void *unused)
{
    pthread_join(first, NULL);
    puts("ready");
    fflush(stdout);
    for (;;)
        pause();
    return unused;
}

int main(void)
{
    pthread_t thread;
    first = pthread_self();
    pthread_create(&thread, NULL, outlive, NULL);
    pthread_exit(NULL);
}
