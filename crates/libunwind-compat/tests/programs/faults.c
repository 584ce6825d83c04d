/* Prints the page faults of the first backtrace, and the number of frames. The code of each frame
 * is on a page of its own. */
#define UNW_LOCAL_ONLY
#include <libunwind.h>
#include <stdio.h>
#include <sys/resource.h>

static volatile int sink;

static long faults(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
}

static int walk(void) {
    void *addresses[128];
    long before = faults();
    int frames = unw_backtrace(addresses, 128);
    long after = faults();
    printf("%ld %d\n", after - before, frames);
    return 0;
}

#define FUNCTION(number, next) \
    static __attribute__((noinline, aligned(4096))) int f##number(void) { \
        return next() + sink; \
    }
#define EIGHT(number, next) \
    FUNCTION(number##7, next) \
    FUNCTION(number##6, f##number##7) \
    FUNCTION(number##5, f##number##6) \
    FUNCTION(number##4, f##number##5) \
    FUNCTION(number##3, f##number##4) \
    FUNCTION(number##2, f##number##3) \
    FUNCTION(number##1, f##number##2) \
    FUNCTION(number##0, f##number##1)

EIGHT(7, walk)
EIGHT(6, f70)
EIGHT(5, f60)
EIGHT(4, f50)
EIGHT(3, f40)
EIGHT(2, f30)
EIGHT(1, f20)
EIGHT(0, f10)

int main(void) {
    sink = f00();
    return 0;
}
