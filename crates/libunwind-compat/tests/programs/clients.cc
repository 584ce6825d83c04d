/* Work for the clients of libunwind to look at: allocations and system calls below frames of many kinds,
 * in a signal handler and in a thread, too. Prints where its libraries are.
 * Usage: clients ROUNDS */
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <unistd.h>

static volatile long sink;

/* What is done innermost. The CPU profiler takes its signal wherever that comes from. */
static void work(int depth) {
    static const bool is_profiled = getenv("CPUPROFILE");
    std::map<std::string, std::vector<int>> map;
    for (char name = 'a'; name < 'd'; name++)
        map[std::string(40, name)].resize(100 + depth % 7);
    getppid();
    if (is_profiled)
        raise(SIGPROF);
    sink = long(map.size());
}

static void handler(int) { work(1); }

static long descend(int depth);

struct Frame {
    virtual ~Frame() = default;
    virtual long down(int depth) = 0;
};

struct Small : Frame {
    long down(int depth) override { return descend(depth) + 2; }
};

struct Lambda : Frame {
    long down(int depth) override {
        std::function<long(int)> next = [this](int below) { return descend(below) + (this != nullptr); };
        return next(depth) * 3;
    }
};

struct Large : Frame {
    long down(int depth) override {
        volatile char bytes[3000];
        bytes[depth] = 1;
        return descend(depth) + bytes[depth];
    }
};

struct OfNoFixedSize : Frame {
    long down(int depth) override {
        auto bytes = static_cast<volatile char *>(__builtin_alloca(size_t(16 + depth)));
        bytes[depth] = 1;
        return descend(depth) + bytes[depth];
    }
};

/* Its CFA is an expression. */
struct Realigned : Frame {
    long down(int depth) override {
        alignas(64) volatile char bytes[128];
        auto more = static_cast<volatile char *>(__builtin_alloca(size_t(16 + depth)));
        bytes[depth] = more[depth] = 1;
        return descend(depth) + bytes[depth] + more[depth];
    }
};

/* Below a function of the C library. */
struct Sorted : Frame {
    static int wanted;
    static int compare(const void *a, const void *b) {
        if (int depth = std::exchange(wanted, 0))
            sink = descend(depth);
        return *static_cast<const int *>(a) - *static_cast<const int *>(b);
    }
    long down(int depth) override {
        int numbers[] = {3, 1, 2};
        wanted = depth;
        qsort(numbers, 3, sizeof *numbers, compare);
        return numbers[0];
    }
};
int Sorted::wanted;

static Frame *const frames[] = {new Small,  new Lambda,    new Large, new OfNoFixedSize,
                                new Sorted, new Realigned, new Lambda};

static long descend(int depth) {
    if (depth == 1)
        raise(SIGUSR1);
    if (depth == 0) {
        work(0);
        return 0;
    }
    return frames[depth % 7]->down(depth - 1) + 1;
}

int main(int argc, char **argv) {
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps))
        fputs(line, stdout);
    fclose(maps);
    signal(SIGUSR1, handler);
    int rounds = argc > 1 ? atoi(argv[1]) : 1;
    for (int round = 0; round < rounds; round++)
        sink = descend(30 + round % 8);
    std::thread([] { sink = descend(20); }).join();
}
