// A thread that waits for its vfork child, which the kernel does not let be interrupted, and
// a second thread that does not.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static void *wait_in_pause(void *unused)
{
    for (;;)
        pause();
    return unused;
}

int main(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, wait_in_pause, NULL);
    puts("ready");
    fflush(stdout);
    if (vfork() == 0) {
        char byte;
        // Until standard input is closed.
        while (read(0, &byte, 1) > 0)
            ;
        _exit(0);
    }
    puts("done");
    fflush(stdout);
    for (;;)
        pause();
}
