// Counts queued real-time signals and adds up their values, until standard input is closed.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static volatile sig_atomic_t count;
static volatile long sum;

static void on_signal(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)context;
    count++;
    sum += info->si_value.sival_int;
}

int main(void)
{
    struct sigaction action = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART };
    char byte;
    sigaction(SIGRTMIN + 1, &action, NULL);
    puts("ready");
    fflush(stdout);
    while (read(0, &byte, 1) > 0)
        ;
    printf("count=%d sum=%ld\n", (int)count, sum);
    return 0;
}
