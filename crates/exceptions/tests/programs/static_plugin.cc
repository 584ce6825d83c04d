/* A plugin, to be linked with a libgcc and a libstdc++ of its own. */
#include <cstdio>
#include <stdexcept>

struct Noisy {
    ~Noisy() { puts("~plugin"); }
};

static __attribute__((noinline)) int throw_deep(int levels) {
    Noisy noisy;
    try {
        if (levels == 0)
            throw std::runtime_error("plugin's");
        return throw_deep(levels - 1) + 1;
    } catch (const std::logic_error &) {
        return 0;
    }
}

extern "C" void plugin_inside() {
    try {
        throw_deep(3);
    } catch (const std::exception &error) {
        printf("plugin caught %s\n", error.what());
    }
}

extern "C" void plugin_throw() {
    Noisy noisy;
    throw 5;
}

extern "C" void plugin_call(void (*function)()) {
    Noisy noisy;
    function();
}

extern "C" void plugin_catch(void (*function)()) {
    try {
        function();
    } catch (...) {
        puts("plugin caught something");
    }
}
