/* Throws through plugins, one after the other. With "keep" none is unloaded. Usage: versions keep|close PLUGIN... */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>

static volatile int thrown = 7;

static __attribute__((noinline)) int thrower() {
    if (int number = thrown)
        throw number;
    return 0;
}

using Through = int(int (*)(), int *);

int main(int argc, char **argv) {
    int right = 0;
    for (int n = 2; n < argc; n++) {
        void *plugin = dlopen(argv[n], RTLD_NOW);
        if (!plugin)
            abort();
        auto through = reinterpret_cast<Through *>(dlsym(plugin, "through"));
        for (int round = 0; round < 2; round++) {
            int cleaned = 0;
            try {
                through(thrower, &cleaned);
            } catch (int number) {
                right += number == 7 && cleaned == 1;
            }
        }
        if (strcmp(argv[1], "keep") != 0)
            dlclose(plugin);
    }
    printf("right %d\n", right);
}
