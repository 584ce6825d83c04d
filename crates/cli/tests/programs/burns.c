// Two threads that work until the program is killed, or for 100 s, each in functions of its own.
#define _GNU_SOURCE
#include <pthread.h>
#include <unistd.h>

#define KEPT __attribute__((noipa))

static volatile unsigned long counts[2];

static KEPT void inner_of_main(void)
{
    for (;;)
        counts[0]++;
}

static KEPT void outer_of_main(void)
{
    inner_of_main();
    counts[0] = 0;
}

static KEPT void *work_of_second(void *unused)
{
    pthread_setname_np(pthread_self(), "second");
    for (;;)
        counts[1]++;
    return unused;
}

int main(void)
{
    pthread_t second;
    alarm(100);
    pthread_create(&second, NULL, work_of_second, NULL);
    outer_of_main();
    return 0;
}
