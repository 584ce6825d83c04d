/* Walks the own stack with each of some libraries, and prints their results. Usage: local
 * LIBRARY... */
#define UNW_LOCAL_ONLY
#include <dlfcn.h>
#include <libunwind.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "library.h"

static int is_preserved(int reg) {
    return reg == UNW_X86_64_RBX || reg == UNW_X86_64_RBP || reg == UNW_X86_64_RSP ||
           reg >= UNW_X86_64_R12;
}

static void walk(void *library, const unw_context_t *original, int flags) {
    LOAD(library, unw_init_local2);
    LOAD(library, unw_step);
    LOAD(library, unw_get_reg);
    LOAD(library, unw_get_save_loc);
    LOAD(library, unw_get_proc_info);
    LOAD(library, unw_get_proc_info_by_ip);
    LOAD(library, unw_get_proc_name);
    LOAD(library, unw_is_signal_frame);
    LOAD(library, unw_get_accessors);
    unw_addr_space_t space = *(unw_addr_space_t *)symbol(library, STRING(unw_local_addr_space));
    unw_accessors_t *accessors = my_unw_get_accessors(space);
    static unw_context_t context;
    context = *original;
    unw_cursor_t cursor;
    int step = my_unw_init_local2(&cursor, &context, flags);
    for (int frame = 0; step >= 0; frame++) {
        /* libunwind reports the frame that was left, until it is asked for the procedure. */
        int is_interrupted = my_unw_is_signal_frame(&cursor);
        printf("frame %d interrupted=%d", frame, is_interrupted);
        for (int reg = 0; reg <= UNW_X86_64_CFA; reg++) {
            unw_word_t value = 0;
            if (frame > 0 && !is_interrupted && !is_preserved(reg))
                continue;
            int result = my_unw_get_reg(&cursor, reg, &value);
            printf(" %d:%d=%lx", reg, result, (long)value);
            unw_save_loc_t location;
            if (reg != UNW_X86_64_RSP && is_preserved(reg)) {
                my_unw_get_save_loc(&cursor, reg, &location);
                printf("@%d.%lx", location.type, (long)location.u.addr);
            }
        }
        unw_proc_info_t info;
        int result = my_unw_get_proc_info(&cursor, &info);
        printf(" info=%d:%lx..%lx,%lx,%lx", result, (long)info.start_ip, (long)info.end_ip,
               (long)info.handler, (long)info.lsda);
        unw_proc_info_t by_ip;
        result = my_unw_get_proc_info_by_ip(space, info.start_ip, &by_ip, NULL);
        printf(" by_ip=%d:%lx..%lx", result, (long)by_ip.start_ip, (long)by_ip.end_ip);
        unw_word_t stack_pointer = 0, word = 0;
        my_unw_get_reg(&cursor, UNW_REG_SP, &stack_pointer);
        if (accessors->access_mem(space, stack_pointer, &word, 0, NULL) != 0)
            printf(" unreadable");
        printf(" word=%lx", (long)word);
        char name[64] = "";
        unw_word_t offset = 0;
        result = my_unw_get_proc_name(&cursor, name, sizeof name, &offset);
        printf(" name=%d:%s+%lx\n", result, name, (long)offset);
        step = my_unw_step(&cursor);
        if (step == 0)
            break;
    }
    printf("end %d\n", step);
}

static __attribute__((noinline)) void backtraces(void *library) {
    LOAD(library, unw_backtrace);
    for (int size = 0; size < 50; size += 7) {
        void *addresses[50];
        /* One call, so that the return address is the same for all. */
        int count = my_unw_backtrace(addresses, size);
        printf("backtrace %d:", count);
        for (int i = 0; i < count; i++)
            printf(" %p", addresses[i]);
        printf("\n");
    }
}

static __attribute__((noinline)) void walk_with(void *library, const unw_context_t *context, int flags) {
    walk(library, context, flags);
    backtraces(library);
}

#include "signalled.h"
