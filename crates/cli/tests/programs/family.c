// A process that starts itself again, and forks without doing so. Each waits; the first prints
// the ids of the others.
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include "ready.h"

#define KEPT __attribute__((noinline, noclone))

static volatile long sink;
static volatile int done;

static KEPT void after_exec(void)
{
    ready();
    for (;;)
        pause();
}

static KEPT void after_fork(int depth)
{
    if (depth > 0)
        after_fork(depth - 1);
    else
        ready();
    while (!done)
        pause();
}

static KEPT pid_t start(int again, char *program)
{
    char *arguments[] = { program, "again", NULL };
    pid_t child = fork();
    if (child == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (child == 0 && again)
        execv("/proc/self/exe", arguments);
    if (child == 0)
        after_fork(3);
    sink++;
    return child;
}

int main(int count, char **arguments)
{
    if (count > 1)
        after_exec();
    pid_t again = start(1, arguments[0]), forked = start(0, arguments[0]);
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    printf("%d %d\n", again, forked);
    fflush(stdout);
    wait(NULL);
}
