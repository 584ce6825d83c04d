/* Walks the stack of a traced process with libunwind-ptrace, and prints the results for each
 * frame. Usage: ptrace LIBUNWIND_X86_64 LIBUNWIND_PTRACE
 *
 * The process is this program again, without environment and address space randomization, so that
 * two runs with different libraries can be compared. */
#include <dlfcn.h>
#include <libunwind-ptrace.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "library.h"

static volatile int sink;

__attribute__((noinline)) void on_signal(int signal) {
    raise(SIGSTOP);
    sink = signal;
}

__attribute__((noinline)) int descend(int depth) {
    volatile char *bytes = __builtin_alloca(16 + 8 * (depth % 5));
    bytes[0] = 1;
    if (depth > 0)
        return descend(depth - 1) + bytes[0];
    raise(SIGUSR1);
    return bytes[0];
}

int compare(const void *a, const void *b) {
    sink = descend(5);
    return *(const int *)a - *(const int *)b;
}

static int target(void) {
    int numbers[] = {2, 1};
    signal(SIGUSR1, on_signal);
    ptrace(PTRACE_TRACEME, 0, 0, 0);
    qsort(numbers, 2, sizeof *numbers, compare);
    return 0;
}

/* The process ID, which differs in each run, is in a register. */
static void print_value(int result, unw_word_t value, pid_t pid) {
    if (value == (unw_word_t)pid)
        printf("%d:PID ", result);
    else
        printf("%d:%lx ", result, (long)value);
}

static void walk(pid_t pid, void *library, void *ptrace_library) {
    LOAD(library, unw_create_addr_space);
    LOAD(library, unw_destroy_addr_space);
    LOAD(library, unw_init_remote);
    LOAD(library, unw_step);
    LOAD(library, unw_get_reg);
    LOAD(library, unw_get_proc_info);
    LOAD(library, unw_get_proc_name);
    LOAD(library, unw_is_signal_frame);
    LOAD(ptrace_library, _UPT_accessors);
    LOAD(ptrace_library, _UPT_create);
    LOAD(ptrace_library, _UPT_destroy);
    const int *offsets = symbol(ptrace_library, "_UPT_reg_offset");

    void *traced = my__UPT_create(pid);
    unw_addr_space_t space = my_unw_create_addr_space(my__UPT_accessors, 0);
    unw_cursor_t cursor;
    int step = my_unw_init_remote(&cursor, space, traced);
    while (step >= 0) {
        printf("signal=%d ", my_unw_is_signal_frame(&cursor));
        for (int reg = 0; reg <= UNW_REG_LAST; reg++) {
            int is_preserved = reg == UNW_X86_64_RBX || reg == UNW_X86_64_RBP ||
                               reg == UNW_X86_64_RSP || reg >= UNW_X86_64_R12;
            unw_word_t value = 0;
            int result = is_preserved ? my_unw_get_reg(&cursor, reg, &value) : 0;
            print_value(result, value, pid);
        }
        unw_proc_info_t info;
        int result = my_unw_get_proc_info(&cursor, &info);
        printf("info=%d:%lx..%lx,%lx,%lx ", result, (long)info.start_ip, (long)info.end_ip,
               (long)info.handler, (long)info.lsda);
        /* With room for the whole name, and for four bytes of it: libunwind 1.8 then finds none. */
        size_t rooms[] = {64, 5};
        for (int i = 0; i < (UNW_VERSION < UNW_VERSION_CODE(1, 8) ? 2 : 1); i++) {
            char name[64];
            unw_word_t offset = 0;
            result = my_unw_get_proc_name(&cursor, name, rooms[i], &offset);
            printf("name=%d:", result);
            if (result != -UNW_ENOINFO)
                printf("%s+%lx ", name, (long)offset);
        }
        printf("\n");
        step = my_unw_step(&cursor);
        if (step == 0)
            break;
    }
    printf("end %d\n", step);
    unw_word_t value;
    for (int reg = 0; reg <= UNW_REG_LAST; reg++) {
        int result = my__UPT_accessors->access_reg(space, reg, &value, 0, traced);
        printf("%d@%d ", reg, offsets[reg]);
        print_value(result, value, pid);
        printf("\n");
    }
    printf("%d\n", my__UPT_accessors->access_reg(space, 17, &value, 0, traced));
    printf("%d\n", my__UPT_accessors->access_mem(space, 8, &value, 0, traced));
    my__UPT_destroy(traced);
    my_unw_destroy_addr_space(space);
}

int main(int argc, char **argv) {
    if (argc == 1)
        return target();
    void *library = load(argv[1], RTLD_GLOBAL);
    void *ptrace_library = load(argv[2], RTLD_GLOBAL);
    pid_t pid = fork();
    if (pid == 0) {
        personality(ADDR_NO_RANDOMIZE);
        char *arguments[] = {"target", NULL}, *environment[] = {NULL};
        execve("/proc/self/exe", arguments, environment);
        _exit(2);
    }
    /* It stops for the signal, and then in its handler. */
    int status;
    waitpid(pid, &status, 0);
    ptrace(PTRACE_CONT, pid, 0, SIGUSR1);
    waitpid(pid, &status, 0);
    if (!WIFSTOPPED(status) || WSTOPSIG(status) != SIGSTOP)
        return 2;
    walk(pid, library, ptrace_library);
    kill(pid, SIGKILL);
    return 0;
}
