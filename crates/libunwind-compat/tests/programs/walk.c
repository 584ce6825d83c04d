/* Walks one stack with each of some libraries, as a remote client with the program itself as its
 * target, and prints their results. Usage: walk ROUNDS LIBRARY...
 *
 * There is a signal frame on the stack. With rounds there is none, and the stack is walked that
 * many times more without output, to count instructions. */
#include <dlfcn.h>
#include <libunwind.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#include "itself.h"

static volatile int sink;

static void walk(const char *path, int rounds, int is_alone) {
    void *library = is_alone ? load(path, RTLD_LOCAL)
                             : checked(dlmopen(LM_ID_NEWLM, path, RTLD_NOW | RTLD_LOCAL));
    LOAD(library, unw_create_addr_space);
    LOAD(library, unw_destroy_addr_space);
    LOAD(library, unw_set_caching_policy);
    LOAD(library, unw_init_remote);
    LOAD(library, unw_step);
    LOAD(library, unw_get_reg);
    LOAD(library, unw_get_save_loc);
    LOAD(library, unw_get_proc_info);
    LOAD(library, unw_get_proc_name);
    LOAD(library, unw_is_signal_frame);
    LOAD(library, unw_regname);
    LOAD(library, unw_strerror);
    search = symbol(library, "_Ux86_64_dwarf_search_unwind_table");

    unw_addr_space_t space = my_unw_create_addr_space(&accessors, 0);
    unw_cursor_t cursor;
    printf("== library\n");
    for (int cached = 0; cached < 2; cached++) {
        if (cached)
            my_unw_set_caching_policy(space, UNW_CACHE_GLOBAL);
        /* The second round finds everything in the cache. */
        for (int round = 0; round < 1 + cached; round++) {
            int step = my_unw_init_remote(&cursor, space, NULL);
            for (int frame = 0; step >= 0; frame++) {
                int is_interrupted = my_unw_is_signal_frame(&cursor);
                printf("frame %d interrupted=%d", frame, is_interrupted);
                for (int reg = 0; reg <= UNW_X86_64_CFA; reg++) {
                    int is_preserved = reg == UNW_X86_64_RBX || reg == UNW_X86_64_RBP ||
                                       reg == UNW_X86_64_RSP || reg >= UNW_X86_64_R12;
                    unw_word_t value = 0;
                    if (frame > 0 && !is_interrupted && !is_preserved)
                        continue;
                    int result = my_unw_get_reg(&cursor, reg, &value);
                    printf(" %d:%d=%lx", reg, result, (long)value);
                    unw_save_loc_t location;
                    if (reg != UNW_X86_64_RSP && is_preserved) {
                        my_unw_get_save_loc(&cursor, reg, &location);
                        printf("@%d.%lx", location.type, (long)location.u.addr);
                    }
                }
                unw_proc_info_t info;
                int result = my_unw_get_proc_info(&cursor, &info);
                printf(" info=%d:%lx..%lx,%lx,%lx", result, (long)info.start_ip,
                       (long)info.end_ip, (long)info.handler, (long)info.lsda);
                char name[32];
                unw_word_t offset = 0;
                result = my_unw_get_proc_name(&cursor, name, sizeof name, &offset);
                printf(" name=%d:%s+%lx\n", result, name, (long)offset);
                step = my_unw_step(&cursor);
                if (step == 0)
                    break;
            }
            printf("end %d %s\n", step, my_unw_strerror(step));
        }
    }
    for (int reg = 0; reg <= UNW_REG_LAST + 1; reg++)
        printf("%s\n", my_unw_regname(reg));
    for (int error = -11; error <= 0; error++)
        printf("%s\n", my_unw_strerror(error));
    unw_word_t value = 1;
    printf("bad %d %d\n", my_unw_get_reg(&cursor, 99, &value), my_unw_get_reg(&cursor, 18, &value));

    int steps = 0;
    for (int round = 0; round < rounds; round++) {
        my_unw_init_remote(&cursor, space, NULL);
        while (my_unw_step(&cursor) > 0)
            steps++;
    }
    printf("steps %d\n", steps);
    my_unw_destroy_addr_space(space);
}

static char **libraries;
static int rounds;

static __attribute__((noinline)) void walk_all(void) {
    getcontext(&context);
    for (int i = 0; libraries[i]; i++)
        walk(libraries[i], rounds, !libraries[1]);
}

static void handler(int signal) {
    walk_all();
    sink = signal;
}

#define AT_THE_BOTTOM (rounds ? walk_all() : (void)raise(SIGUSR1))
#include "descent.h"

int main(int argc, char **argv) {
    rounds = atoi(argv[1]);
    libraries = argv + 2;
    signal(SIGUSR1, handler);
    int numbers[] = {3, 1, 2};
    qsort(numbers, 3, sizeof *numbers, compare);
    return 0;
}
