/* Steps as a remote client from a function by its table, until there is no caller. Usage: endless
 * LIBRARY */
#include <libunwind.h>
#include <stdio.h>

#include "itself.h"

extern char function[];
__asm__(".text\n"
        "function:\n"
        ".cfi_startproc\n"
        "nop\n"
        "ret\n"
        ".cfi_endproc\n");

int main(int argc, char **argv) {
    void *library = load(argv[1], RTLD_LOCAL);
    LOAD(library, unw_create_addr_space);
    LOAD(library, unw_init_remote);
    LOAD(library, unw_step);
    LOAD(library, unw_is_signal_frame);
    search = symbol(library, "_Ux86_64_dwarf_search_unwind_table");
    static unw_word_t stack[4];
    context.uc_mcontext.gregs[REG_RIP] = (greg_t)function;
    context.uc_mcontext.gregs[REG_RBX] = (greg_t)(function + 1);
    context.uc_mcontext.gregs[REG_RSP] = (greg_t)stack;
    unw_cursor_t cursor;
    my_unw_init_remote(&cursor, my_unw_create_addr_space(&accessors, 0), NULL);
    int steps = 0, interrupted = 0, step;
    while ((step = my_unw_step(&cursor)) > 0 && steps < 1000000) {
        steps++;
        interrupted += my_unw_is_signal_frame(&cursor) > 0;
    }
    printf("%d steps to %d interrupted frames, then %d\n", steps, interrupted, step);
    return 0;
}
