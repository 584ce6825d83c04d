/* Steps as a remote client from functions that are far from each other and from the start of
 * their module. Prints how often a step reads memory. Usage: far LIBRARY */
#include <libunwind.h>
#include <stdio.h>

#include "itself.h"

enum { FUNCTIONS = 64, DISTANCE = 1 << 18 };

extern char functions[];
__asm__(".text\n"
        "functions:\n"
        ".rept 64\n"
        ".cfi_startproc\n"
        "ret\n"
        ".cfi_endproc\n"
        ".skip (1 << 18) - 1\n"
        ".endr\n");

int main(int argc, char **argv) {
    void *library = load(argv[1], RTLD_LOCAL);
    LOAD(library, unw_create_addr_space);
    LOAD(library, unw_set_caching_policy);
    LOAD(library, unw_init_remote);
    LOAD(library, unw_step);
    search = symbol(library, "_Ux86_64_dwarf_search_unwind_table");
    unw_addr_space_t space = my_unw_create_addr_space(&accessors, 0);
    my_unw_set_caching_policy(space, UNW_CACHE_GLOBAL);
    static unw_word_t stack[] = {0x1234, 0, 0, 0};
    context.uc_mcontext.gregs[REG_RSP] = (greg_t)stack;
    for (int n = 0; n < FUNCTIONS; n++) {
        context.uc_mcontext.gregs[REG_RIP] = (greg_t)(functions + n * DISTANCE);
        unw_cursor_t cursor;
        my_unw_init_remote(&cursor, space, NULL);
        unsigned long before = reads;
        int step = my_unw_step(&cursor);
        printf("%d %lu\n", step, reads - before);
    }
    return 0;
}
