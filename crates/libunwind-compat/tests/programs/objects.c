/* Walks the own stack with each of some libraries. Prints the locations of registers, and changes
 * them, in only one frame of each walk: tables as machine code have no locations. Usage: objects
 * LIBRARY... */
#define UNW_LOCAL_ONLY
#include <libunwind.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "library.h"

enum { WALKS = 45 };

static const int preserved[] = {UNW_X86_64_RBX, UNW_X86_64_RBP, UNW_X86_64_R12,
                                UNW_X86_64_R13, UNW_X86_64_R14, UNW_X86_64_R15};
enum { PRESERVED = sizeof preserved / sizeof *preserved };

static void walk(void *library, const unw_context_t *original, int flags, int asked) {
    LOAD(library, unw_init_local2);
    LOAD(library, unw_step);
    LOAD(library, unw_get_reg);
    LOAD(library, unw_set_reg);
    LOAD(library, unw_get_save_loc);
    LOAD(library, unw_is_signal_frame);
    static unw_context_t context;
    context = *original;
    unw_cursor_t cursor;
    int step = my_unw_init_local2(&cursor, &context, flags);
    for (int frame = 0; step >= 0; frame++) {
        unw_word_t ip = 0, sp = 0;
        my_unw_get_reg(&cursor, UNW_REG_IP, &ip);
        my_unw_get_reg(&cursor, UNW_REG_SP, &sp);
        printf("frame %d %lx %lx %d", frame, (long)ip, (long)sp, my_unw_is_signal_frame(&cursor));
        for (int n = 0; n < PRESERVED; n++) {
            unw_word_t value = 0;
            int result = my_unw_get_reg(&cursor, preserved[n], &value);
            printf(" %d:%d=%lx", preserved[n], result, (long)value);
        }
        for (int n = 0; n < PRESERVED && frame == asked; n++) {
            unw_save_loc_t location;
            my_unw_get_save_loc(&cursor, preserved[n], &location);
            printf(" %d@%d.%lx", preserved[n], location.type, (long)location.u.addr);
            if (location.type != UNW_SLT_MEMORY)
                continue;
            unw_word_t *word = (unw_word_t *)location.u.addr, before = *word;
            int result = my_unw_set_reg(&cursor, preserved[n], before ^ 0x5a5a);
            unw_word_t written = *word ^ before, seen = 0;
            my_unw_get_reg(&cursor, preserved[n], &seen);
            my_unw_set_reg(&cursor, preserved[n], before);
            printf("%+d:%lx,%lx", result, (long)written, (long)(seen ^ before));
        }
        printf("\n");
        step = my_unw_step(&cursor);
        if (step == 0)
            break;
    }
    printf("end %d\n", step);
}

static __attribute__((noinline)) void backtrace(void *library) {
    LOAD(library, unw_backtrace);
    void *addresses[64];
    int count = my_unw_backtrace(addresses, 64);
    printf("backtrace %d:", count);
    for (int n = 0; n < count; n++)
        printf(" %p", addresses[n]);
    printf("\n");
}

static __attribute__((noinline)) void walk_with(void *library, const unw_context_t *context, int flags) {
    /* One call, so that the return address is the same for all. */
    for (int asked = -1; asked < WALKS; asked++)
        walk(library, context, flags, asked);
    backtrace(library);
}

#include "signalled.h"
