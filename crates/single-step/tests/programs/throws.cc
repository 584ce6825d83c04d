// Exceptions across functions in assembly, and out of functions that are stepped themselves.
#include <cstdlib>

extern "C" int calls(void (*)(void *), void *);
extern "C" int right(int);

struct Counted {
    int *count;
    ~Counted() { right(++*count); }
};

static void throws(void *number) {
    throw *static_cast<int *>(number);
}

__attribute__((noinline)) static int catches(int number, int *count) {
    try {
        Counted counted{count};
        calls(throws, &number);
    } catch (int caught) {
        right(caught);
        return caught;
    }
    return -1;
}

int main() {
    int count = 0;
    for (int number = 0; number < 10; number++)
        if (catches(number, &count) != number)
            return 1;
    return count != 10;
}
