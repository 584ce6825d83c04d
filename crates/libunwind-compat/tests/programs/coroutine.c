/* Walks stacks that lie below the thread's own in memory, with a hole between the two. A frame is
 * corrupt: its frame pointer points into the hole. The program dies if a walk follows it.
 *
 * Usage: coroutine */
#define UNW_LOCAL_ONLY
#include <libunwind.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { PAGE = 4096, STACK = 32 * PAGE, THREAD = 64 * PAGE };

static ucontext_t coroutine, back;
static char *hole;
static volatile int sink;

/* The number of frames to the end, which may be an error. */
static __attribute__((noinline)) int steps(void) {
    unw_context_t context;
    unw_cursor_t cursor;
    unw_getcontext(&context);
    unw_init_local(&cursor, &context);
    int count = 0;
    while (unw_step(&cursor) > 0)
        count++;
    return count;
}

static __attribute__((noinline)) void walk(const char *what) {
    void *addresses[64];
    /* The second time uses the cached results of the first. */
    for (int i = 0; i < 2; i++) {
        int stepped = steps(), found = unw_backtrace(addresses, 64);
        printf("%s: %d steps, %d addresses\n", what, stepped, found);
    }
}

/* Its caller's frame pointer is in its frame, and its caller's frame is found by that. */
static __attribute__((noinline, optimize("no-omit-frame-pointer"))) void corrupt(void) {
    void *volatile *frame = __builtin_frame_address(0), *before = frame[0];
    frame[0] = hole;
    walk("corrupt");
    frame[0] = before;
}

static __attribute__((noinline)) int call_corrupt(int size) {
    /* A frame of unknown size has a frame pointer. */
    volatile char *bytes = __builtin_alloca(size);
    bytes[0] = 1;
    corrupt();
    return bytes[0];
}

static void run(void) {
    walk("sound");
    sink = call_corrupt(64);
}

/* A coroutine's stack in the lowest pages, a hole, and the thread's own. */
static void *thread(void *arena) {
    walk("thread");
    hole = (char *)arena + STACK + PAGE / 2;
    getcontext(&coroutine);
    coroutine.uc_stack.ss_sp = arena;
    coroutine.uc_stack.ss_size = STACK;
    coroutine.uc_link = &back;
    makecontext(&coroutine, run, 0);
    swapcontext(&back, &coroutine);
    walk("thread");
    return NULL;
}

int main(void) {
    char *arena = mmap(NULL, STACK + PAGE + THREAD, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (arena == MAP_FAILED || munmap(arena + STACK, PAGE) != 0)
        return 2;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, arena + STACK + PAGE, THREAD);
    pthread_t other;
    if (pthread_create(&other, &attributes, thread, arena) != 0)
        return 2;
    pthread_join(other, NULL);
    return 0;
}
