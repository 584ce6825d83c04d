/* Walks from the handler of a signal that returns to the program's own trampoline. No table
 * covers the trampoline; the function right before it has one. Prints which frames were
 * interrupted. Usage: restorer LIBRARY */
#define UNW_LOCAL_ONLY
#include <libunwind.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "library.h"

extern char trampoline[];
__asm__(".text\n"
        ".cfi_startproc\n"
        ".cfi_def_cfa_offset 80\n"
        "ud2\n"
        ".cfi_endproc\n"
        "trampoline:\n"
        "mov $15, %rax\n"
        "syscall\n");

/* The kernel's structure; the C library's sigaction sets the trampoline itself. */
struct action {
    void (*handler)(int);
    unsigned long flags;
    void *restorer;
    unsigned long mask;
};

static void *library;

static void walk(int signal) {
    LOAD(library, unw_init_local);
    LOAD(library, unw_step);
    LOAD(library, unw_is_signal_frame);
    int (*my_getcontext)(unw_context_t *) = symbol(library, "_Ux86_64_getcontext");
    unw_context_t here;
    unw_cursor_t cursor;
    my_getcontext(&here);
    my_unw_init_local(&cursor, &here);
    int step;
    do {
        step = my_unw_step(&cursor);
        printf("%d%s\n", step, my_unw_is_signal_frame(&cursor) > 0 ? " interrupted" : "");
    } while (step > 0);
}

int main(int argc, char **argv) {
    enum { SA_WITH_RESTORER = 0x04000000 };
    library = load(argv[1], RTLD_LOCAL);
    struct action action = {walk, SA_WITH_RESTORER, trampoline, 0};
    syscall(SYS_rt_sigaction, SIGTRAP, &action, NULL, sizeof action.mask);
    __asm__ volatile("int3");
    return 0;
}
