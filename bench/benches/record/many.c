// Calls functions of many modules, in turns.
//
//     many FOLDER MODULES ROUNDS
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    if (argc < 4)
        return 2;
    int modules = atoi(argv[2]);
    long (**work)(long) = calloc(modules, sizeof *work);
    for (int i = 0; i < modules; ++i) {
        char path[4096];
        snprintf(path, sizeof path, "%s/module-%d.so", argv[1], i);
        void *module = dlopen(path, RTLD_NOW);
        if (!module || !(*(void **)&work[i] = dlsym(module, "work"))) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
    }
    long sum = 0;
    for (long round = atol(argv[3]); round > 0; --round)
        sum += work[round % modules](round);
    return sum == 1;
}
