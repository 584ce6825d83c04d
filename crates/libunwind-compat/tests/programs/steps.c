/* Walks the own stack with a library repeatedly, and prints the number of steps after the first
 * walk. Usage: steps ROUNDS LIBRARY */
#define UNW_LOCAL_ONLY
#include <libunwind.h>
#include <stdio.h>
#include <stdlib.h>

#include "library.h"

static int rounds;
static void *library;
static volatile int sink;

static void walk_again(void) {
    LOAD(library, unw_init_local);
    LOAD(library, unw_step);
    int (*my_getcontext)(unw_context_t *) = symbol(library, "_Ux86_64_getcontext");
    int steps = 0;
    for (int round = 0; round <= rounds; round++) {
        unw_context_t context;
        unw_cursor_t cursor;
        my_getcontext(&context);
        my_unw_init_local(&cursor, &context);
        while (my_unw_step(&cursor) > 0)
            steps += round > 0;
    }
    printf("steps %d\n", steps);
}

#define AT_THE_BOTTOM walk_again()
#include "descent.h"

int main(int argc, char **argv) {
    rounds = atoi(argv[1]);
    library = load(argv[2], RTLD_LOCAL);
    int numbers[] = {3, 1, 2};
    qsort(numbers, 3, sizeof *numbers, compare);
    return 0;
}
