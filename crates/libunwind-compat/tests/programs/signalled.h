/* Walks with each of the libraries in the program's arguments, from the context of a signal and
 * from its handler, by the program's own walk_with. Define that before including this. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static char **libraries;
static volatile int sink;

static __attribute__((noinline)) void walk_all(const unw_context_t *context, int flags) {
    for (int n = 0; libraries[n]; n++) {
        void *library = load(libraries[n], RTLD_LOCAL);
        printf("== library\n");
        walk_with(library, context, flags);
    }
}

static void handler(int signal, siginfo_t *info, void *context) {
    walk_all(context, UNW_INIT_SIGNAL_FRAME);
    unw_context_t here;
    int (*my_getcontext)(unw_context_t *) = symbol(load(libraries[0], RTLD_LOCAL), "_Ux86_64_getcontext");
    my_getcontext(&here);
    walk_all(&here, 0);
    sink = signal;
}

#define AT_THE_BOTTOM raise(SIGUSR1)
#include "descent.h"

int main(int argc, char **argv) {
    libraries = argv + 1;
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    sigaction(SIGUSR1, &action, NULL);
    int numbers[] = {3, 1, 2};
    qsort(numbers, 3, sizeof *numbers, compare);
    return 0;
}
