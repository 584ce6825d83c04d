/* Walks twice from a signal handler on a stack of its own. Prints the number of frames and the
 * bytes of stack used. Usage: small LIBRARY */
#define UNW_LOCAL_ONLY
#include <libunwind.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "library.h"

enum { SIZE = 256 << 10, UNTOUCHED = 0x5a };

static int (*my_getcontext)(unw_context_t *), (*my_init)(unw_cursor_t *, unw_context_t *), (*my_step)(unw_cursor_t *);
static unw_context_t context;
static unw_cursor_t cursor;
static int frames;
static char *frame;

static void handler(int signal) {
    frame = __builtin_frame_address(0);
    my_getcontext(&context);
    my_init(&cursor, &context);
    for (frames = 1; my_step(&cursor) > 0; frames++)
        ;
}

__attribute__((noinline)) static int deep(int levels) {
    return levels == 0 ? raise(SIGUSR1) : deep(levels - 1) + 1;
}

int main(int argc, char **argv) {
    void *library = load(argv[1], RTLD_NOW);
    my_getcontext = symbol(library, "_Ux86_64_getcontext");
    my_init = symbol(library, "_ULx86_64_init_local");
    my_step = symbol(library, "_ULx86_64_step");
    char *stack = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = SIZE}, NULL);
    sigaction(SIGUSR1, &(struct sigaction){.sa_handler = handler, .sa_flags = SA_ONSTACK}, NULL);
    for (int round = 0; round < 2; round++) {
        memset(stack, UNTOUCHED, SIZE);
        if (deep(10) < 10)
            return 1;
        char *lowest = stack;
        while (*lowest == UNTOUCHED)
            lowest++;
        printf("%d %td\n", frames, frame - lowest);
    }
    return 0;
}
