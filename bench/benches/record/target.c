// Preloaded: when the command UNSPOOL_TARGET exits, writes its CPU time, including its waited-for children,
// in microseconds to the file UNSPOOL_TIME.
//
// It is measured from within the process: perf unwinds less of a program that was started by a wrapper.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static pid_t target;

__attribute__((constructor)) static void begin(int argc, char **argv) {
    const char *expected = getenv("UNSPOOL_TARGET");
    for (int at = 0; expected && at < argc; at++) {
        size_t length = strlen(argv[at]);
        if (strncmp(expected, argv[at], length) != 0)
            return;
        expected += length;
        if (*expected == ' ')
            expected++;
    }
    if (expected && *expected == 0)
        target = getpid();
}

static long long micros(int who) {
    struct rusage usage;
    if (getrusage(who, &usage) != 0)
        return 0;
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000LL + usage.ru_utime.tv_usec +
           usage.ru_stime.tv_usec;
}

__attribute__((destructor)) static void end(void) {
    // Its children run this, too.
    FILE *file = target && target == getpid() ? fopen(getenv("UNSPOOL_TIME"), "w") : NULL;
    if (file) {
        fprintf(file, "%lld\n", micros(RUSAGE_SELF) + micros(RUSAGE_CHILDREN));
        fclose(file);
    }
}
