/* Two plugins whose functions are at the same addresses: VERSION 1 only cleans up, 2 catches in a larger frame. */
struct Guard {
    int *cleaned;
    ~Guard() { *cleaned += VERSION; }
};

/* The linkage table before it has different sizes. */
extern "C" __attribute__((aligned(4096))) int through(int (*function)(), int *cleaned) {
    Guard guard{cleaned};
#if VERSION == 1
    return function() + 1;
#else
    volatile char room[200];
    room[0] = 1;
    try {
        return function() + room[0];
    } catch (int number) {
        return 10 * number;
    }
#endif
}
