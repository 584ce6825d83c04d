/* Frames of several kinds: with and without a frame pointer, and below a function of the C
 * library, which gets `compare`. The innermost action is AT_THE_BOTTOM. `sink`, defined by the
 * program, keeps values from being optimized away. */

/* With a frame pointer, because its stack has no fixed size. */
static __attribute__((noinline)) int with_alloca(int depth) {
    volatile char *bytes = __builtin_alloca(16 + 8 * (depth % 5));
    bytes[0] = 1;
    if (depth > 0)
        return with_alloca(depth - 1) + bytes[0];
    AT_THE_BOTTOM;
    return bytes[0];
}

static __attribute__((noinline)) int recurse(int depth, int a, int b, int c, int d) {
    if (depth == 0)
        return with_alloca(6) + a;
    int result = recurse(depth - 1, b + 1, c * 3, d ^ depth, a - b);
    return result + a * b + c * d;
}

static int compare(const void *a, const void *b) {
    static int is_done;
    if (!is_done++)
        sink = recurse(20, 1, 2, 3, 4);
    return *(const int *)a - *(const int *)b;
}
