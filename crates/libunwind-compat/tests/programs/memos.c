/* Backtraces of two threads, again and again, of stacks with a part that changes each time; and
 * of signal handlers that interrupt them anywhere. Each is compared with the frames found by
 * steps. */
#define UNW_LOCAL_ONLY
#include <libunwind.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MOST = 128, ROUNDS = 20000 };

static _Thread_local volatile int sink;
static volatile int interrupted;

static __attribute__((noinline)) int check(void) {
    void *addresses[MOST];
    unw_context_t context;
    unw_cursor_t cursor;
    int found = unw_backtrace(addresses, MOST);
    unw_getcontext(&context);
    unw_init_local(&cursor, &context);
    int frame = 1;
    for (; unw_step(&cursor) > 0; frame++) {
        unw_word_t ip = 0;
        unw_get_reg(&cursor, UNW_REG_IP, &ip);
        if (frame >= found || ip != (unw_word_t)addresses[frame])
            abort();
    }
    if (frame != found)
        abort();
    return frame;
}

static void handler(int signal) {
    sink = check();
    interrupted++;
}

/* The bits of a number select the functions at each depth. */
static __attribute__((noinline)) int one(int depth, unsigned way);

static __attribute__((noinline)) int two(int depth, unsigned way) {
    volatile char bytes[32 + way % 3 * 16];
    bytes[0] = depth > 0 ? one(depth - 1, way >> 1) : check();
    return bytes[0];
}

static __attribute__((noinline)) int one(int depth, unsigned way) {
    if (depth == 0)
        return check() + 1;
    int result = way & 1 ? one(depth - 1, way >> 1) : two(depth - 1, way >> 1);
    return result * depth;
}

static void *walks(void *unused) {
    unsigned way = 1;
    for (int round = 0; round < ROUNDS; round++) {
        /* Mostly the same, so that memos can be used. */
        if (round % 4 == 0)
            way = way * 1103515245 + 12345;
        sink = one(20 + round % 2, way >> 8);
    }
    return NULL;
}

int main(void) {
    struct sigaction action = {.sa_handler = handler};
    sigaction(SIGPROF, &action, NULL);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGPROF};
    struct itimerspec often = {{0, 50000}, {0, 50000}};
    timer_t timer;
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 ||
        timer_settime(timer, 0, &often, NULL) != 0)
        return 2;
    pthread_t other;
    if (pthread_create(&other, NULL, walks, NULL) != 0)
        return 2;
    walks(NULL);
    pthread_join(other, NULL);
    while (interrupted == 0)
        walks(NULL);
    puts("all alike");
    return 0;
}
