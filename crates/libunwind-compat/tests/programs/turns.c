/* Walks as a remote client through a function of one library, and then of another that is loaded
 * at the same address: without caching, and with a cache that is flushed in between. Usage: turns
 * LIBUNWIND LIBRARY LIBRARY */
#include <libunwind.h>
#include <stdio.h>

#include "itself.h"

static void *library;
static unw_addr_space_t space;

static void walk(void) {
    LOAD(library, unw_init_remote);
    LOAD(library, unw_step);
    unw_cursor_t cursor;
    getcontext(&context);
    my_unw_init_remote(&cursor, space, NULL);
    int steps = 0;
    while (my_unw_step(&cursor) > 0)
        steps++;
    printf("%d steps\n", steps);
}

int main(int argc, char **argv) {
    library = load(argv[1], RTLD_LOCAL);
    LOAD(library, unw_create_addr_space);
    LOAD(library, unw_set_caching_policy);
    LOAD(library, unw_flush_cache);
    search = symbol(library, "_Ux86_64_dwarf_search_unwind_table");
    space = my_unw_create_addr_space(&accessors, 0);
    void *before = NULL;
    for (int is_kept = 0; is_kept < 2; is_kept++) {
        my_unw_set_caching_policy(space, is_kept ? UNW_CACHE_GLOBAL : UNW_CACHE_NONE);
        for (int i = 2; i < argc; i++) {
            void *there = load(argv[i], RTLD_LOCAL);
            void (*call)(void (*)(void)) = symbol(there, "call");
            if (before && before != (void *)call)
                return 2;
            before = (void *)call;
            call(walk);
            call(walk);
            dlclose(there);
            if (is_kept)
                my_unw_flush_cache(space, 0, 0);
        }
    }
    return 0;
}
