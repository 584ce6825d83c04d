/* Throws through two plugins in turn, which are unloaded each time, while threads throw. Usage: reload FIRST SECOND */
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <pthread.h>

static std::atomic<bool> ended;

static volatile int thrown = 7;

static __attribute__((noinline)) int thrower() {
    if (int number = thrown)
        throw number;
    return 0;
}

static __attribute__((noinline)) int deep(int levels) { return levels ? deep(levels - 1) + 1 : thrower(); }

static void *throws(void *) {
    bool is_caught = true;
    do {
        int caught = 0;
        try {
            deep(20);
        } catch (int number) {
            caught = number;
        }
        is_caught = is_caught && caught == 7;
    } while (!ended);
    return is_caught ? &ended : nullptr;
}

using Through = int(int (*)(), int *);

/* What a plugin makes of an exception: what it returns, or 1 if it is passed; and its cleanups. */
static int round_with(const char *path, void **address) {
    void *plugin = dlopen(path, RTLD_NOW);
    if (!plugin)
        abort();
    auto through = reinterpret_cast<Through *>(dlsym(plugin, "through"));
    *address = reinterpret_cast<void *>(through);
    int cleaned = 0, result = 0;
    try {
        result = through(thrower, &cleaned);
    } catch (int) {
        result = 1;
    }
    dlclose(plugin);
    return 100 * cleaned + result;
}

int main(int, char **argv) {
    pthread_t threads[4];
    for (auto &thread : threads)
        pthread_create(&thread, nullptr, throws, nullptr);
    int same = 0, right = 0;
    for (int round = 0; round < 300; round++) {
        void *first, *second;
        right += round_with(argv[1], &first) == 101;
        right += round_with(argv[2], &second) == 270;
        same += first == second;
    }
    ended = true;
    for (auto thread : threads) {
        void *result;
        pthread_join(thread, &result);
        right += result != nullptr;
    }
    printf("right %d, %s at one address\n", right, same > 250 ? "nearly always" : "seldom");
}
