/* Walks its own stack with a signal frame on it, by steps and as a backtrace. The output does not
 * depend on the unwind tables that the program was linked with. */
#define UNW_LOCAL_ONLY
#include <dlfcn.h>
#include <libunwind.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static volatile int sink;

static void print(unw_word_t ip) {
    Dl_info info;
    if (dladdr((void *)ip, &info) && info.dli_sname)
        printf(" %s+%lx", info.dli_sname, (long)(ip - (unw_word_t)info.dli_saddr));
}

void walk(void) {
    unw_context_t context;
    unw_cursor_t cursor;
    unw_getcontext(&context);
    unw_init_local(&cursor, &context);
    int step;
    do {
        unw_word_t ip, fp;
        unw_proc_info_t info;
        unw_get_reg(&cursor, UNW_REG_IP, &ip);
        int has_fp = unw_get_reg(&cursor, UNW_X86_64_RBP, &fp);
        int has_info = unw_get_proc_info(&cursor, &info);
        printf("frame");
        print(ip);
        step = unw_step(&cursor);
        /* The outermost is the program's entry, which only one of the tables covers. */
        if (step > 0)
            printf(" %d %lx-%lx rbp %d", has_info, (long)(ip - info.start_ip),
                   (long)(info.end_ip - info.start_ip), has_fp);
        printf("\n");
    } while (step > 0);
    printf("end %d\n", step);

    void *addresses[64];
    int count = unw_backtrace(addresses, 64);
    printf("backtrace %d\n", count);
    for (int i = 0; i < count; i++) {
        print((unw_word_t)addresses[i]);
        printf("\n");
    }
}

void handler(int signal) {
    walk();
    sink = signal;
}

/* The CFA is an offset from the frame pointer. */
__attribute__((noinline)) void by_frame_pointer(int size) {
    volatile char room[size];
    room[0] = 1;
    raise(SIGUSR1);
    sink = room[0];
}

int compare(const void *one, const void *other) {
    static int is_there;
    if (!is_there++)
        by_frame_pointer(*(const int *)one + 100);
    return *(const int *)one - *(const int *)other;
}

__attribute__((noinline)) int recurse(int depth) {
    volatile char room[100];
    room[0] = (char)depth;
    if (depth == 0) {
        int numbers[] = {3, 1, 2};
        qsort(numbers, 3, sizeof *numbers, compare);
        return numbers[0];
    }
    return recurse(depth - 1) + room[0];
}

int main(void) {
    signal(SIGUSR1, handler);
    return recurse(30) == 0;
}
