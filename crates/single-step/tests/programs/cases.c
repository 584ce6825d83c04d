// Programs in one: argv[1] says which.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

int right(int);
int wrong(int);
int wrong_places(int);
int has_data(int);
int calls(void *, void *);
int jumps(void *, int);
int loops(int);
void endless(void);
int reads(void);
int misleads(void);
long shares(long);
long stale_word(long);
void recurses(int);
void descends(unsigned depth, unsigned turns, unsigned way);
void moves(uintptr_t);
void switch_stack(void **from, void *to);

static void *work(void *unused) {
    for (int i = 0; i < 200; i++) {
        right(i);
        calls((void *)right, (void *)(intptr_t)i);
    }
    return unused;
}

static void threads(void) {
    pthread_t ids[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&ids[i], NULL, work, NULL);
    for (int i = 0; i < 4; i++)
        pthread_join(ids[i], NULL);
}

// Threads that come to the same breakpoints at once, are interrupted there, and start processes meanwhile.
static volatile sig_atomic_t interrupted;
static void interrupt(int signal) {
    (void)signal;
    interrupted++;
    right(1);
}
static void *storms(void *unused) {
    for (int i = 0; i < 60; i++) {
        if (right(i) != i + 1 || reads() != 1000 || calls((void *)right, (void *)1) != 2)
            exit(1);
        pthread_kill(pthread_self(), SIGUSR1);
        if (i % 20 == 0) {
            int status;
            pid_t child = fork();
            if (child == 0)
                _exit(right(i) == i + 1 && reads() == 1000 ? 0 : 1);
            if (waitpid(child, &status, 0) != child || status != 0)
                exit(2);
        }
    }
    return unused;
}
static void storm(void) {
    pthread_t ids[4];
    signal(SIGUSR1, interrupt);
    for (int i = 0; i < 4; i++)
        pthread_create(&ids[i], NULL, storms, NULL);
    for (int i = 0; i < 4; i++)
        pthread_join(ids[i], NULL);
    if (interrupted < 4)
        exit(3);
}

// The child alone calls the wrong function.
static void forks(void) {
    right(1);
    pid_t child = fork();
    if (child == 0)
        _exit(wrong(1) == 2 ? 0 : 1);
    waitpid(child, NULL, 0);
}

static void spawns(void) {
    right(1);
    if (vfork() == 0) {
        right(2);
        execl("/bin/true", "true", (char *)NULL);
        _exit(1);
    }
    wait(NULL);
    right(3);
    if (system("exit 3") == -1)
        exit(1);
}

static jmp_buf back;
static void leaves(void *unused) {
    (void)unused;
    longjmp(back, 1);
}
static int jumps_out(void *unused) {
    (void)unused;
    volatile int times = 0;
    if (setjmp(back) == 0)
        calls((void *)leaves, NULL);
    times++;
    return times;
}
static void longjmps(void) {
    for (int i = 0; i < 10; i++) {
        calls((void *)jumps_out, NULL);
        right(1);
    }
}

static volatile sig_atomic_t caught;
static void handler(int signal) {
    (void)signal;
    caught++;
    right(signal);
}
static void raises(void *unused) {
    (void)unused;
    raise(SIGUSR1);
}
static void signals(void) {
    signal(SIGUSR1, handler);
    for (int i = 0; i < 20; i++)
        calls((void *)raises, NULL);
    // They come in the middle of what is stepped.
    signal(SIGALRM, handler);
    ualarm(300, 300);
    while (caught < 60)
        loops(50);
    ualarm(0, 0);
}

// A signal's handler leaves by longjmp what it interrupted.
static sigjmp_buf out;
static void leaver(int signal) {
    (void)signal;
    siglongjmp(out, 1);
}
static void fault(void *unused) {
    (void)unused;
    *(volatile int *)8 = 1;
}
static void faults(void) {
    signal(SIGSEGV, leaver);
    for (volatile int i = 0; i < 5; i++)
        if (sigsetjmp(out, 1) == 0)
            calls((void *)fault, NULL);
    right(1);
}

static void tail_calls(void) {
    for (int i = 0; i < 5; i++)
        if (jumps((void *)right, i) != i + 1 || jumps((void *)abs, -i) != i)
            exit(1);
}

static void rarely(void) {
    for (int i = 0; i < 3000; i++)
        loops(3);
    loops(1000000000);
}

static int order(const void *a, const void *b) {
    return right(*(const int *)a) - right(*(const int *)b);
}
static void sorts(void *unused) {
    (void)unused;
    int numbers[50];
    for (int i = 0; i < 50; i++)
        numbers[i] = (i * 37) % 50;
    qsort(numbers, 50, sizeof *numbers, order);
}
static void callbacks(void) {
    calls((void *)sorts, NULL);
}

// Coroutines whose stacks lie one behind another, and inside of a function's frame.
enum { STACK = 16384 };
static void *main_sp, *sp[3];
static int running;
static void coroutine(void) {
    int me = running;
    for (int i = 0;; i++) {
        right(i);
        running = (me + 1) % 3;
        if (i == 20)
            switch_stack(&sp[me], main_sp);
        switch_stack(&sp[me], sp[running]);
    }
}
static void coroutines(void) {
    char stacks[3][STACK] __attribute__((aligned(16)));
    char *heap = malloc(3 * STACK);
    for (int inside = 0; inside < 2; inside++) {
        for (int i = 0; i < 3; i++) {
            char *start = inside ? stacks[i] : heap + i * STACK;
            void **top = (void **)((uintptr_t)(start + STACK) & ~(uintptr_t)15) - 9;
            top[3] = (void *)coroutine;
            sp[i] = top;
        }
        running = 0;
        switch_stack(&main_sp, sp[0]);
        right(inside);
    }
}

static ucontext_t contexts[2];
static void context(void) {
    for (int i = 0; i < 5; i++) {
        right(i);
        swapcontext(&contexts[1], &contexts[0]);
    }
}
static void swaps(void *unused) {
    (void)unused;
    static char stack[65536];
    getcontext(&contexts[1]);
    contexts[1].uc_stack.ss_sp = stack;
    contexts[1].uc_stack.ss_size = sizeof stack;
    contexts[1].uc_link = &contexts[0];
    makecontext(&contexts[1], context, 0);
    for (int i = 0; i < 6; i++)
        swapcontext(&contexts[0], &contexts[1]);
}
static void contexts_(void) {
    calls((void *)swaps, NULL);
    right(1);
}

static void counter(int signal) {
    (void)signal;
    caught++;
}
static void fights(void) {
    right(1);
    // A program that looks whether it is traced, and stops itself.
    ptrace(PTRACE_TRACEME, 0, NULL, NULL);
    signal(SIGTRAP, counter);
    __asm__ volatile("int3");
    raise(SIGTRAP);
    if (caught != 2)
        exit(1);
    signal(SIGTRAP, SIG_DFL);
    right(2);
}

static void ends(void *unused) {
    (void)unused;
    _exit(7);
}

static void executes(char *self) {
    right(1);
    execl(self, self, "wrong", (char *)NULL);
}

static void opens(char *library) {
    void *handle = dlopen(library, RTLD_NOW);
    int (*function)(int) = handle ? (int (*)(int))dlsym(handle, "wrong") : NULL;
    if (function == NULL || function(1) != 2)
        exit(1);
}

int main(int count, char **arguments) {
    (void)count;
    const char *which = arguments[1];
    static const struct {
        const char *name;
        void (*run)(void);
    } all[] = {
        {"threads", threads},       {"storm", storm},         {"forks", forks},
        {"spawns", spawns},
        {"longjmps", longjmps},     {"signals", signals},     {"faults", faults},
        {"tail_calls", tail_calls}, {"rarely", rarely},       {"callbacks", callbacks},
        {"coroutines", coroutines}, {"contexts", contexts_},  {"fights", fights},
        {"endless", endless},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(all[i].name, which) == 0)
            all[i].run();
    if (strcmp(which, "wrong") == 0)
        return wrong(1) != 2;
    if (strcmp(which, "has_data") == 0)
        return has_data(1) != 2;
    if (strcmp(which, "wrong_places") == 0)
        return wrong_places(1) != 2;
    if (strcmp(which, "stale_word") == 0)
        return stale_word(1) != 8;
    if (strcmp(which, "shares") == 0)
        return shares(1) != 3;
    if (strcmp(which, "misleads") == 0)
        return misleads() != 1;
    if (strcmp(which, "moves") == 0)
        moves(32);
    if (strcmp(which, "descends") == 0) {
        // The call is awaited, then known well, then reached by the last of so many steps that showed nothing new
        // that the thread runs at full speed from there on.
        for (unsigned way = 0; way < 2; way++)
            descends(0, 64, way);
        for (unsigned way = 2; way < 8; way += 2)
            descends(1, 1, way);
        descends(2, 14, 8);
    }
    if (strcmp(which, "recurses") == 0) {
        recurses(0);
        recurses(2);
    }
    if (strcmp(which, "ends") == 0)
        calls((void *)ends, NULL);
    if (strcmp(which, "executes") == 0)
        executes(arguments[0]);
    if (strcmp(which, "opens") == 0)
        opens(arguments[2]);
    if (strcmp(which, "nothing") == 0)
        return 0;
    return 0;
}
