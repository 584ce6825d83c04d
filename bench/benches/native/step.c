/* Measures a step: step OBJECT… ADDRESSES, a file with addresses in hexadecimal. For each object and each of
 * 16, 256, 4096 and 65536 different addresses, alternating: prints the median and the best of 15 rounds of
 * 65536 steps. */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "unspool_native.h"

enum { STEPS = 65536, ROUNDS = 15, OBJECTS = 4, MOST = 1 << 22 };

typedef int step(struct unspool_frame *, uint64_t, uint64_t, const struct unspool_memory *);

static uint64_t addresses[MOST], asked[STEPS], stack[8192];

static uint64_t next(void)
{
    static uint64_t state = UINT64_C(0x9e3779b97f4a7c15);
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static double nanoseconds(step *unspool_step, uint64_t *callers)
{
    const struct unspool_memory memory = {(uintptr_t)stack, (uintptr_t)(stack + 8192), NULL, NULL};
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (int n = 0; n < STEPS; n++) {
        struct unspool_frame frame;
        frame.known = 0x1ffff;
        for (int r = 0; r < UNSPOOL_REGISTERS; r++)
            frame.registers[r] = (uintptr_t)(stack + 4000);
        *callers += unspool_step(&frame, asked[n], 0, &memory) == UNSPOOL_CALLER;
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    return ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) / STEPS;
}

static int ascending(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

int main(int argc, char **argv)
{
    step *steps[OBJECTS];
    int objects = argc - 2, count = 0;
    FILE *list = fopen(argv[argc - 1], "r");
    if (objects < 1 || objects > OBJECTS || !list)
        return 2;
    while (count < MOST && fscanf(list, "%" SCNx64, &addresses[count]) == 1)
        count++;
    for (int o = 0; o < objects; o++) {
        void *object = dlopen(argv[o + 1], RTLD_NOW);
        if (!object) {
            fprintf(stderr, "%s\n", dlerror());
            return 2;
        }
        steps[o] = (step *)dlsym(object, "unspool_step");
    }
    for (int different = 16; different <= STEPS; different *= different < 4096 ? 16 : STEPS / 4096) {
        static double rounds[OBJECTS][ROUNDS];
        uint64_t callers[OBJECTS] = {0};
        for (int n = 0; n < STEPS; n++)
            asked[n] = addresses[(different < STEPS ? next() % different * 7919 : next()) % count];
        for (int round = 0; round < ROUNDS; round++)
            for (int o = 0; o < objects; o++)
                rounds[o][round] = nanoseconds(steps[o], &callers[o]);
        for (int o = 0; o < objects; o++) {
            qsort(rounds[o], ROUNDS, sizeof(double), ascending);
            printf("%s | %d addresses | %.1f ns | best %.1f\n", argv[o + 1], different, rounds[o][ROUNDS / 2],
                   rounds[o][0]);
            if (callers[o] != callers[0])
                return 3;
        }
    }
    return 0;
}
