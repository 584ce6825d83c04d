// Deep stacks of varied frames, a different one each time: virtual calls, std::function, std::map, qsort.
//
//     deep DEPTH ROUNDS
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <vector>

struct Node {
    virtual ~Node() = default;
    virtual uint64_t eval(int depth, uint64_t x) = 0;
};

static std::vector<std::unique_ptr<Node>> nodes;
static int limit;

static uint64_t leaf(uint64_t x) {
    for (int i = 0; i < 300; ++i)
        x = x * 6364136223846793005u + (x >> 33);
    return x;
}

static uint64_t next(int depth, uint64_t x) {
    if (depth >= limit)
        return leaf(x);
    return nodes[(x >> 20) % nodes.size()]->eval(depth + 1, leaf(x) ^ depth);
}

struct Plain : Node {
    uint64_t eval(int depth, uint64_t x) override { return next(depth, x) + 1; }
};

struct Called : Node {
    uint64_t eval(int depth, uint64_t x) override {
        std::function<uint64_t(uint64_t)> rest = [=](uint64_t y) { return next(depth, y) * 3; };
        return rest(x) + 1;
    }
};

struct Big : Node {
    uint64_t eval(int depth, uint64_t x) override {
        volatile char local[400];
        local[x % 400] = depth;
        return next(depth, x) + local[x % 400];
    }
};

struct Mapped : Node {
    uint64_t eval(int depth, uint64_t x) override {
        std::map<int, uint64_t> results;
        results[depth] = x;
        results[depth + 1] = next(depth, x);
        return results[depth] + results[depth + 1];
    }
};

struct Sorted : Node {
    static int depth;
    static uint64_t x, result;
    static bool is_first;
    static int compare(const void *a, const void *b) {
        if (is_first) {
            is_first = false;
            uint64_t below = next(depth, x);
            result = below;
        }
        return *static_cast<const int *>(a) - *static_cast<const int *>(b);
    }
    uint64_t eval(int at, uint64_t value) override {
        int numbers[4] = {3, 1, 2, static_cast<int>(value & 7)};
        depth = at;
        x = value;
        is_first = true;
        qsort(numbers, 4, sizeof numbers[0], compare);
        return result + numbers[0];
    }
};

int Sorted::depth;
uint64_t Sorted::x, Sorted::result;
bool Sorted::is_first;

int main(int argc, char **argv) {
    if (argc < 3)
        return 2;
    limit = atoi(argv[1]);
    for (int i = 0; i < 3; ++i) {
        nodes.emplace_back(new Plain);
        nodes.emplace_back(new Called);
        nodes.emplace_back(new Big);
        nodes.emplace_back(new Mapped);
        nodes.emplace_back(new Sorted);
    }
    uint64_t x = 88172645463325252u;
    for (long rounds = atol(argv[2]); rounds > 0; --rounds)
        x = next(0, x) | 1;
    printf("%llx\n", static_cast<unsigned long long>(x));
}
