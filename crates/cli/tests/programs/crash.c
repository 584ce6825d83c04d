// crash HOW: three threads, of which the second ends the program in one of several ways, when
// the others wait.
#define _GNU_SOURCE
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <sys/syscall.h>
#include <unistd.h>

#define KEPT __attribute__((noipa))

#ifndef SYS_pause
#define SYS_pause SYS_ppoll
#endif

static const char *how;
static sigjmp_buf back;
static volatile long sink;

static KEPT void touches(volatile int *at)
{
    *at = 1;
    sink++;
}

static KEPT long overflows(long depth)
{
    volatile char buffer[4096];
    buffer[depth % 4096] = (char)depth;
    return overflows(depth + 1) + buffer[depth % 4096];
}

static KEPT void calls(void (*function)(void))
{
    function();
    sink++;
}

// Destroys its return address: neither the stack nor a register has it any more.
static KEPT void smashes(void)
{
    volatile char buffer[16];
    volatile char *at = buffer;
    for (int i = 0; i < 256; i++)
        *at++ = 0x58;
}

static void on_signal(int number)
{
    sink += number;
    siglongjmp(back, 1);
}

static KEPT void handles(void)
{
    signal(SIGSEGV, on_signal);
    if (sigsetjmp(back, 1) == 0)
        touches((int *)16);
    exit(3);
}

static KEPT void ends(void)
{
    if (!strcmp(how, "segv"))
        touches((int *)0x123450);
    else if (!strcmp(how, "abort"))
        abort();
    else if (!strcmp(how, "overflow"))
        sink += overflows(0);
    else if (!strcmp(how, "null"))
        calls(NULL);
    else if (!strcmp(how, "data"))
        calls((void (*)(void))&sink);
    else if (!strcmp(how, "nowhere"))
        calls((void (*)(void))0x1234567890);
    else if (!strcmp(how, "vdso"))
        clock_gettime(CLOCK_REALTIME_COARSE, (struct timespec *)16);
    else if (!strcmp(how, "smash"))
        smashes();
    else if (!strcmp(how, "handled"))
        handles();
    else if (!strcmp(how, "kill"))
        kill(getpid(), SIGKILL);
    else
        exit(atoi(how));
    sink++;
}

static void *waits(void *unused)
{
    for (;;)
        pause();
    return unused;
}

// The number of threads in pause.
static int waiting(void)
{
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; (task = readdir(tasks));) {
        char path[300];
        long call;
        if (task->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/syscall", task->d_name);
        FILE *file = fopen(path, "r");
        count += file && fscanf(file, "%ld", &call) == 1 && call == SYS_pause;
        if (file)
            fclose(file);
    }
    closedir(tasks);
    return count;
}

static void *crashes(void *unused)
{
    while (waiting() < 2)
        sched_yield();
    ends();
    return unused;
}

int main(int count, char **arguments)
{
    pthread_t threads[2];
    how = count > 1 ? arguments[1] : "0";
    puts("from the program");
    fflush(stdout);
    pthread_create(&threads[0], NULL, crashes, NULL);
    pthread_create(&threads[1], NULL, waits, NULL);
    waits(NULL);
}
