// Threads blocked in system calls, below functions that keep values in every callee-saved
// register.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include "ready.h"

#define KEPT __attribute__((noinline, noclone))
#define COUNT 10

static pthread_barrier_t all;
static int ends[2], sockets[2], events;
static sem_t semaphore;
static int word;
static volatile long sink;
static volatile int done;

static KEPT void block(long way)
{
    char byte;
    struct pollfd fd = { .fd = ends[0], .events = POLLIN };
    struct epoll_event event;
    struct timespec day = { .tv_sec = 86400 };
    switch (way) {
    case 0: read(ends[0], &byte, 1); break;
    case 1: poll(&fd, 1, -1); break;
    case 2: epoll_wait(events, &event, 1, -1); break;
    case 3: syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0); break;
    case 4: nanosleep(&day, NULL); break;
    case 5: sem_wait(&semaphore); break;
    case 6: recv(sockets[0], &byte, 1, 0); break;
    case 7: pause(); break;
    default: clock_nanosleep(CLOCK_MONOTONIC, 0, &day, NULL); break;
    }
}

// Six values live across the call take rbx, rbp and r12 to r15.
static KEPT long keeps(long way, long depth, long a, long b, long c, long d)
{
    long e = a * b, f = c - d, g = a ^ d, h = b | c;
    if (depth > 0)
        e += keeps(way, depth - 1, f, g, h, a);
    else
        while (!done)
            block(way);
    return e + f * g - h + a * depth;
}

static void *run(void *way)
{
    pthread_barrier_wait(&all);
    sink += keeps((long)way, 5, 1, sink, 3, 4);
    return NULL;
}

int main(void)
{
    pthread_barrier_init(&all, NULL, COUNT + 1);
    events = epoll_create1(0);
    if (pipe(ends) || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) || sem_init(&semaphore, 0, 0))
        return 1;
    for (long way = 0; way < COUNT; way++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, run, (void *)way))
            return 1;
    }
    pthread_barrier_wait(&all);
    ready();
    for (;;)
        pause();
}
