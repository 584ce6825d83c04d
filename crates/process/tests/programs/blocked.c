// Threads blocked in read, poll, select, futex, nanosleep and clock_nanosleep. A line on
// standard input ends it; it prints how many calls failed, and how short the sleeps were.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static atomic_int failed, short_sleeps, stop;
static atomic_int word;
static int ends[2];

// A futex whose word changed before the thread was back in the call is no failure (EAGAIN).
static void check(long result)
{
    if (result < 0 && errno != EAGAIN)
        failed++;
}

static void *in_read(void *unused)
{
    char byte;
    check(read(ends[0], &byte, 1));
    return unused;
}

static void *in_poll(void *unused)
{
    struct pollfd fd = { .fd = ends[0], .events = POLLIN };
    check(poll(&fd, 1, 600000));
    return unused;
}

static void *in_select(void *unused)
{
    fd_set set;
    FD_ZERO(&set);
    FD_SET(ends[0], &set);
    check(select(ends[0] + 1, &set, NULL, NULL, NULL));
    return unused;
}

static void *in_futex(void *unused)
{
    check(syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0));
    return unused;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void *in_nanosleep(void *unused)
{
    while (!stop) {
        struct timespec time = { .tv_nsec = 30000000 };
        double before = now();
        check(nanosleep(&time, NULL));
        if (now() - before < 0.0299)
            short_sleeps++;
    }
    return unused;
}

int main(void)
{
    void *(*run[])(void *) = { in_read, in_poll, in_select, in_futex, in_nanosleep };
    pthread_t threads[5];
    char line[16];
    if (pipe(ends))
        return 1;
    for (int i = 0; i < 5; i++)
        pthread_create(&threads[i], NULL, run[i], NULL);
    puts("ready");
    fflush(stdout);
    check(read(0, line, sizeof line));
    stop = 1;
    word = 1;
    syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    // The byte stays for poll and select; then read takes it.
    check(write(ends[1], "abc", 3));
    for (int i = 0; i < 5; i++)
        pthread_join(threads[i], NULL);
    printf("failed=%d short=%d\n", (int)failed, (int)short_sleeps);
    return 0;
}
