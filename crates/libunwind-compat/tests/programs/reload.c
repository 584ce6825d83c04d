/* Walks through a function of one library, and then of another that is loaded at the same
 * address. Usage: reload LIBRARY LIBRARY */
#define UNW_LOCAL_ONLY
#include <dlfcn.h>
#include <libunwind.h>
#include <stdio.h>

static void walk(void) {
    unw_context_t context;
    unw_cursor_t cursor;
    unw_getcontext(&context);
    unw_init_local(&cursor, &context);
    int steps = 0;
    while (unw_step(&cursor) > 0)
        steps++;
    printf("%d steps\n", steps);
}

int main(int argc, char **argv) {
    void *before = NULL;
    for (int i = 1; i < argc; i++) {
        void *library = dlopen(argv[i], RTLD_NOW);
        if (!library) {
            fprintf(stderr, "%s\n", dlerror());
            return 2;
        }
        int (*call)(void (*)(void)) = dlsym(library, "call");
        if (before && before != (void *)call) {
            fprintf(stderr, "not at the same place\n");
            return 2;
        }
        before = (void *)call;
        /* The second time all rows are cached. */
        call(walk);
        call(walk);
        dlclose(library);
    }
    return 0;
}
