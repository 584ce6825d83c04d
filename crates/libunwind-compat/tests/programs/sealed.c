/* Walks the own stack while every allocation kills the program, and every system call except
 * those that a walk may make. Usage: sealed */
#define UNW_LOCAL_ONLY
#include <libunwind.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static _Thread_local int is_sealed;
static _Thread_local volatile int sink;
static int is_signal;

/* Allocates from a pool without freeing. */
void *malloc(size_t size) {
    static _Alignas(16) char heap[1 << 20];
    static size_t used;
    if (is_sealed)
        abort();
    size_t start = __atomic_fetch_add(&used, (size + 15) & -16, __ATOMIC_RELAXED);
    return start + size <= sizeof heap ? heap + start : NULL;
}

void *calloc(size_t count, size_t size) {
    return malloc(count * size);
}

void *realloc(void *block, size_t size) {
    abort();
}

void free(void *block) {
    if (is_sealed)
        abort();
}

#define LOAD_FIELD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
/* Skips the next statement unless the value is equal. */
#define IF_EQUAL(value) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1)
#define RETURN(action) BPF_STMT(BPF_RET | BPF_K, action)

static void seal(struct sock_filter *statements, size_t count) {
    struct sock_fprog program = {.len = count, .filter = statements};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) != 0)
        exit(3);
    is_sealed = 1;
}

#define SEAL(...)                                                      \
    do {                                                               \
        struct sock_filter statements[] = {LOAD_FIELD(nr), __VA_ARGS__ \
                                           RETURN(SECCOMP_RET_KILL_PROCESS)}; \
        seal(statements, sizeof statements / sizeof *statements);      \
    } while (0)

#define ALLOW(call) IF_EQUAL(SYS_##call), RETURN(SECCOMP_RET_ALLOW)

/* The system calls that a thread may still make at the end: to print, to exit, and to leave its
   handler. */
#define LAST_WORDS ALLOW(write), ALLOW(exit), ALLOW(exit_group), ALLOW(rt_sigreturn),

static __attribute__((noinline)) void walk(const char *when, void *interrupted) {
    unw_context_t context;
    unw_cursor_t cursor;
    void *addresses[64];
    int flags = interrupted ? UNW_INIT_SIGNAL_FRAME : 0;
    unw_getcontext(&context);
    unw_init_local2(&cursor, interrupted ? interrupted : &context, flags);
    int steps = 0, last;
    while ((last = unw_step(&cursor)) > 0)
        steps++;
    int found = unw_backtrace(addresses, 64);
    char line[80];
    int length = snprintf(line, sizeof line, "%s: %d steps, then %d; %d addresses\n", when, steps,
                          last, found);
    if (write(STDOUT_FILENO, line, length) != length)
        abort();
}

static void walk_sealed(void *context) {
    /* At first, queries about memory are allowed: they read a mask and change nothing. */
    SEAL(LAST_WORDS ALLOW(gettid), ALLOW(getpid), ALLOW(prctl), ALLOW(seccomp),
         IF_EQUAL(SYS_rt_sigprocmask), LOAD_FIELD(args[0]), IF_EQUAL(0xffff),
         RETURN(SECCOMP_RET_ALLOW), );
    walk("first", context);
    SEAL(LAST_WORDS);
    unw_flush_cache(unw_local_addr_space, 0, 0);
    walk("cold", context);
    walk("hot", context);
}

static void handler(int signal, siginfo_t *info, void *context) {
    walk_sealed(context);
}

#define AT_THE_BOTTOM                \
    do {                             \
        if (is_signal)               \
            raise(SIGUSR1);          \
        else                         \
            walk_sealed(NULL);       \
    } while (0)
#include "descent.h"

/* Ends the thread without the C library's cleanup. */
static void *thread(void *unused) {
    (void)compare;
    sink = recurse(3, 1, 2, 3, 4);
    syscall(SYS_exit, 0);
    return NULL;
}

static void *thread_in_handler(void *unused) {
    is_signal = 1;
    return thread(unused);
}

int main(void) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    sigaction(SIGUSR1, &action, NULL);
    pthread_t other;
    void *(*const threads[])(void *) = {thread, thread_in_handler};
    for (int i = 0; i < 2; i++)
        if (pthread_create(&other, NULL, threads[i], NULL) != 0 || pthread_join(other, NULL) != 0)
            return 2;
    is_signal = 0;
    thread(NULL);
}
