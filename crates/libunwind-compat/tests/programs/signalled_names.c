/* A timer interrupts the C library's allocator. Its handler calls all functions that the manual
 * pages call signal-safe, and any allocation on the handler's stack ends the program. The
 * handlers end by unw_resume. Prints the number of walks, the number with a name that only the
 * program's file has, and the number of other faults. */
#define UNW_LOCAL_ONLY
#include <errno.h>
#include <libunwind.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

enum { WALKS = 300, BEFORE = 4711 };

static _Alignas(16) char stack[64 << 10];
static volatile int walks, named, wrong;

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void __libc_free(void *);

static void not_in_handler(const char *what) {
    char here;
    if (&here < stack || &here >= stack + sizeof stack)
        return;
    if (write(STDERR_FILENO, what, strlen(what)) > 0)
        abort();
}

void *malloc(size_t size) {
    not_in_handler("malloc\n");
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
    not_in_handler("calloc\n");
    return __libc_calloc(count, size);
}

void *realloc(void *block, size_t size) {
    not_in_handler("realloc\n");
    return __libc_realloc(block, size);
}

void free(void *block) {
    not_in_handler("free\n");
    __libc_free(block);
}

static void start_timer(void) {
    /* A different interval each time, so that other instructions are interrupted. */
    struct itimerval time = {.it_value.tv_usec = 20 + walks % 97};
    setitimer(ITIMER_REAL, &time, NULL);
}

static void ask(unw_cursor_t *cursor, void *context) {
    char name[64];
    unw_word_t ip, offset, value;
    unw_proc_info_t info, same;
    unw_fpreg_t number;
    wrong += unw_get_reg(cursor, UNW_REG_IP, &ip) != 0;
    wrong += unw_is_signal_frame(cursor) < 0;
    wrong += unw_get_proc_info(cursor, &info) != 0;
    wrong += unw_get_proc_info_by_ip(unw_local_addr_space, info.start_ip, &same, context) != 0;
    wrong += same.start_ip != info.start_ip;
    if (unw_get_reg(cursor, UNW_X86_64_RBX, &value) == 0)
        wrong += unw_set_reg(cursor, UNW_X86_64_RBX, value) != 0;
    wrong += unw_get_fpreg(cursor, UNW_X86_64_RBX, &number) == 0 || unw_is_fpreg(UNW_X86_64_RBX);
    wrong += unw_set_fpreg(cursor, UNW_X86_64_RBX, number) == 0;
    if (unw_get_proc_name(cursor, name, sizeof name, &offset) == 0 && strcmp(name, "churn") == 0)
        named++;
}

static void handler(int signal, siginfo_t *info, void *context) {
    unw_cursor_t cursor, interrupted, same;
    unw_context_t here;
    errno = BEFORE;
    wrong += unw_getcontext(&here) != 0 || unw_init_local(&interrupted, &here) != 0;
    while (unw_step(&interrupted) > 0 && unw_is_signal_frame(&interrupted) == 0)
        ;
    wrong += unw_init_remote(&same, unw_local_addr_space, context) != 0;
    wrong += unw_init_local2(&cursor, context, UNW_INIT_SIGNAL_FRAME) != 0;
    wrong += unw_get_accessors(unw_local_addr_space) == NULL;
    wrong += strcmp(unw_regname(UNW_X86_64_RBX), "RBX") != 0;
    if (walks % 10 == 0)
        unw_flush_cache(unw_local_addr_space, 0, 0);
    do
        ask(&cursor, context);
    while (unw_step(&cursor) > 0);
    wrong += errno != BEFORE;
    if (++walks < WALKS)
        start_timer();
    unw_resume(&interrupted);
    wrong++;
}

/* Its name is in no loaded table. */
static __attribute__((noinline)) void churn(void) {
    void *blocks[64] = {NULL};
    start_timer();
    for (unsigned round = 0; walks < WALKS; round++) {
        free(blocks[round % 64]);
        blocks[round % 64] = malloc(16 + round * 7919 % 5000);
    }
    for (int i = 0; i < 64; i++)
        free(blocks[i]);
}

int main(void) {
    sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof stack}, NULL);
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigaction(SIGALRM, &action, NULL);
    churn();
    printf("named in %d of %d walks, %d wrong\n", named, walks, wrong);
    return 0;
}
