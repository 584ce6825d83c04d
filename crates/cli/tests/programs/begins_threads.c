// Does nothing but begin threads, which do nothing.
#include <pthread.h>
#include "ready.h"

static void *nothing(void *data)
{
    return data;
}

int main(void)
{
    ready();
    for (;;) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, nothing, NULL) == 0)
            pthread_detach(thread);
    }
}
