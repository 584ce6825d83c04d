/* Throws in, into, out of and through a plugin that has a libgcc of its own. Usage: static_plugin_host PLUGIN WAY... */
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdexcept>
#include <unistd.h>

struct Noisy {
    const char *name;
    ~Noisy() { printf("~%s\n", name); }
};

static void *plugin;

template <typename... Arguments> static void in_plugin(const char *name, Arguments... arguments) {
    reinterpret_cast<void (*)(Arguments...)>(dlsym(plugin, name))(arguments...);
}

static void thrower() {
    Noisy noisy{"thrower"};
    throw std::runtime_error("host's");
}

static void through() {
    Noisy noisy{"through"};
    in_plugin("plugin_throw");
}

static sem_t sleeping;

static void sleeper() {
    Noisy noisy{"sleeper"};
    sem_post(&sleeping);
    for (;;)
        pause();
}

static void exiter() {
    Noisy noisy{"exiter"};
    pthread_exit(nullptr);
}

static void *thread(void *function) {
    Noisy noisy{"thread"};
    in_plugin("plugin_call", reinterpret_cast<void (*)()>(function));
    return nullptr;
}

static void run(void (*function)()) {
    pthread_t other;
    pthread_create(&other, nullptr, thread, reinterpret_cast<void *>(function));
    if (function == sleeper) {
        sem_wait(&sleeping);
        pthread_cancel(other);
    }
    pthread_join(other, nullptr);
}

static void go(const char *way) {
    auto is = [way](const char *name) { return strcmp(way, name) == 0; };
    if (is("inside"))
        in_plugin("plugin_inside");
    if (is("host"))
        thrower();
    if (is("out"))
        through();
    if (is("through"))
        in_plugin("plugin_call", thrower);
    if (is("in"))
        in_plugin("plugin_catch", thrower);
    if (is("nested"))
        in_plugin("plugin_call", through);
    if (is("cancel"))
        run(sleeper);
    if (is("exit"))
        run(exiter);
}

int main(int argc, char **argv) {
    setvbuf(stdout, nullptr, _IONBF, 0);
    plugin = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : nullptr;
    if (!plugin)
        return 2;
    for (int i = 2; i < argc; i++) {
        printf("%s:\n", argv[i]);
        try {
            go(argv[i]);
        } catch (const std::exception &error) {
            printf("host caught %s\n", error.what());
        } catch (int number) {
            printf("host caught %d\n", number);
        }
    }
    return 0;
}
