/* An exception on its way through a library, LIBRARY, whose function calls back. */
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <exception>

static void throws(void) { throw 5; }

int main(int, char **arguments) {
    std::set_terminate([] {
        puts("terminated");
        exit(0);
    });
    void *library = dlopen(arguments[1], RTLD_NOW);
    auto pass = reinterpret_cast<void (*)(void (*)(void))>(dlsym(library, "pass"));
    try {
        pass(throws);
    } catch (int number) {
        printf("caught %d\n", number);
    }
    return 0;
}
