/* Throws COUNT times through DEPTH frames and catches. Usage: throws KIND DEPTH COUNT */
#include <cstdio>
#include <cstdlib>
#include <cstring>

static volatile int cleaned;

struct Guard {
    ~Guard() { cleaned++; }
};

/* Frames without a landing pad. */
static __attribute__((noinline)) int plain(int depth) {
    if (depth == 0)
        throw 1;
    int deeper = plain(depth - 1);
    asm volatile("");
    return deeper + 1;
}

/* Each frame has a destructor. */
static __attribute__((noinline)) int destructors(int depth) {
    Guard guard;
    if (depth == 0)
        throw 1;
    return destructors(depth - 1) + 1;
}

/* Each frame has a handler of another type. */
static __attribute__((noinline)) int handlers(int depth) {
    try {
        if (depth == 0)
            throw 1;
        return handlers(depth - 1) + 1;
    } catch (const char *) {
        return 0;
    }
}

int main(int argc, char **argv) {
    if (argc != 4)
        return 2;
    int (*function)(int) = plain;
    if (strcmp(argv[1], "destructors") == 0)
        function = destructors;
    if (strcmp(argv[1], "handlers") == 0)
        function = handlers;
    int caught = 0, depth = atoi(argv[2]);
    for (int count = atoi(argv[3]); count > 0; count--)
        try {
            function(depth);
        } catch (int number) {
            caught += number;
        }
    printf("caught %d, cleaned %d\n", caught, cleaned);
}
