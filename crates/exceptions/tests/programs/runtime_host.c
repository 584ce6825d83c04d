/* A plugin returns to its place, and the runtime with its personality routine comes to another one.
 * Usage: runtime_host PLUGIN RUNTIME */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unwind.h>

static _Unwind_Reason_Code stop(int version, _Unwind_Action action, _Unwind_Exception_Class class,
                                struct _Unwind_Exception *exception, struct _Unwind_Context *context, void *landing) {
    (void)version, (void)class, (void)exception, (void)context;
    if (action & _UA_END_OF_STACK)
        __builtin_longjmp(landing, 1);
    return _URC_NO_REASON;
}

static void *landing[5];

static void throws(void) {
    static struct _Unwind_Exception exception;
    _Unwind_ForcedUnwind(&exception, stop, landing);
}

int main(int argc, char **argv) {
    void *places[2][2];
    if (argc != 3)
        return 2;
    for (int round = 0; round < 2; round++) {
        void *plugin = dlopen(argv[1], RTLD_NOW), *runtime = dlopen(argv[2], RTLD_NOW);
        if (!plugin || !runtime)
            abort();
        void (*through)(void (*)(void)) = (void (*)(void (*)(void)))dlsym(plugin, "through");
        int *calls = dlsym(runtime, "calls");
        if (__builtin_setjmp(landing) == 0)
            through(throws);
        printf("calls %d\n", *calls);
        places[round][0] = (void *)through;
        places[round][1] = dlsym(runtime, "runtime_personality");
        dlclose(runtime);
        dlclose(plugin);
        /* Nothing can be called there any more. */
        char *page = (char *)((unsigned long)places[round][1] & -4096ul);
        if (mmap(page, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != page)
            abort();
    }
    printf("plugin %s, runtime %s\n", places[0][0] == places[1][0] ? "stays" : "moves",
           places[0][1] == places[1][1] ? "stays" : "moves");
}
