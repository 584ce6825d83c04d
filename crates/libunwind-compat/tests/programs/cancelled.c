/* Walks the stack of a thread with a pending cancellation. Prints whether there is a caller,
 * errno after that, and whether the thread has reached its end. Usage: cancelled LIBRARY */
#define UNW_LOCAL_ONLY
#include <errno.h>
#include <libunwind.h>
#include <pthread.h>
#include <stdio.h>

#include "library.h"

enum { BEFORE = 4711 };

static void *walk(void *library) {
    LOAD(library, unw_init_local2);
    LOAD(library, unw_step);
    int (*my_getcontext)(unw_context_t *) = symbol(library, "_Ux86_64_getcontext");
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    pthread_cancel(pthread_self());
    unw_context_t context;
    unw_cursor_t cursor;
    my_getcontext(&context);
    my_unw_init_local2(&cursor, &context, 0);
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    errno = BEFORE;
    int step = my_unw_step(&cursor), after = errno;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    printf("step %d, errno %s\n", step, after == BEFORE ? "as before" : "changed");
    return library;
}

int main(int argc, char **argv) {
    void *library = load(argv[1], RTLD_LOCAL), *result;
    pthread_t thread;
    pthread_create(&thread, NULL, walk, library);
    pthread_join(thread, &result);
    printf("%s\n", result == PTHREAD_CANCELED ? "cancelled" : "at its end");
    return 0;
}
