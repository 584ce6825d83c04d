/* Functions that call each other, one of which is inlined. */
static volatile int sink;

static inline __attribute__((always_inline)) void inlined(int n) {
    for (int i = 0; i < n; i++)
        sink += i;
}

__attribute__((noinline)) void leaf(int n) {
    inlined(n);
    sink++;
}

__attribute__((noinline)) void work(int n) {
    leaf(n);
    if (n > 0)
        work(n - 1);
    sink++;
}

int main(void) {
    work(3);
    return sink & 1;
}
