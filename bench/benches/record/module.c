// A module of a thousand functions; each call of `work` calls twenty of them.
#define ONE(n)                                                                                      \
    __attribute__((noinline)) static long f##n(long x, int depth) {                                 \
        volatile long local[n % 50 + 1];                                                            \
        for (int i = 0; i < 40; ++i)                                                                \
            local[i % (n % 50 + 1)] = x * n + i;                                                    \
        return depth ? next(local[0] + n, depth - 1) + local[n % 50] : local[0];                    \
    }
#define TEN(n) ONE(n##0) ONE(n##1) ONE(n##2) ONE(n##3) ONE(n##4) ONE(n##5) ONE(n##6) ONE(n##7) ONE(n##8) ONE(n##9)
#define HUNDRED(n) TEN(n##0) TEN(n##1) TEN(n##2) TEN(n##3) TEN(n##4) TEN(n##5) TEN(n##6) TEN(n##7) TEN(n##8) TEN(n##9)
#define ALL HUNDRED(1) HUNDRED(2) HUNDRED(3) HUNDRED(4) HUNDRED(5) HUNDRED(6) HUNDRED(7) HUNDRED(8) HUNDRED(9)

static long next(long x, int depth);
ALL

#undef ONE
#define ONE(n) f##n,
static long (*const functions[])(long, int) = {ALL};

static long next(long x, int depth) {
    unsigned long at = (unsigned long)x * 0x9e3779b97f4a7c15u >> 40;
    return functions[at % (sizeof functions / sizeof *functions)](x, depth);
}

long work(long x) { return next(x, 20); }
