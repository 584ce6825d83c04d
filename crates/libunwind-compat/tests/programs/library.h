/* Opens libraries with equal symbols. A failure ends the program. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#define STRING2(x) #x
#define STRING(x) STRING2(x)

/* A function of a library, as my_NAME. */
#define LOAD(library, name) __typeof__(&name) my_##name = symbol(library, STRING(name))

static inline void *checked(void *found) {
    if (!found) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
    return found;
}

static inline void *load(const char *path, int flags) {
    return checked(dlopen(path, RTLD_NOW | flags));
}

static inline void *symbol(void *library, const char *name) {
    return checked(dlsym(library, name));
}
