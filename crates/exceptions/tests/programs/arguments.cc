// Exceptions that leave calls whose arguments are on the stack. Whoever catches them has popped these.
#include <cstdint>
#include <cstdio>

static volatile int sink;

__attribute__((noinline)) static uintptr_t stack() {
    return reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
}

__attribute__((noinline)) static int many(int a, int b, int c, int d, int e, int f, int g, int h,
                                          int i) {
    if (sink == 0)
        throw a + i;
    return b + c + d + e + f + g + h;
}

// Three of nine arguments are pushed.
__attribute__((noinline)) static int catches(int x) {
    uintptr_t first = 0;
    int sum = 0;
    for (int round = 0; round < 5; round++) {
        try {
            sum += many(x, 1, 2, 3, 4, 5, 6, 7, round);
        } catch (int thrown) {
            uintptr_t here = stack();
            if (first == 0)
                first = here;
            std::printf("caught %d, %ld bytes lower\n", thrown, (long)(first - here));
        }
    }
    return sum;
}

int main() {
    return catches(100);
}
