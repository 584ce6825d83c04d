// copies LIBRARY [OTHER]: waits below `through` of three copies of a library, each loaded into a
// separate namespace. Before each, the start of the file is mapped as data. Once one copy is
// loaded, OTHER takes the library's place.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include "ready.h"

enum { COPIES = 3 };

typedef long Through(long (*)(long), long);

static Through *copies[COPIES];

static long down(long number)
{
    if (number < COPIES)
        return copies[number](down, number + 1) + 1;
    ready();
    for (;;)
        pause();
}

int main(int count, char **arguments)
{
    for (int i = 0; i < COPIES; i++) {
        int file = open(arguments[1], O_RDONLY);
        void *data = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE, file, 0);
        void *copy = dlmopen(i ? LM_ID_NEWLM : LM_ID_BASE, arguments[1], RTLD_NOW);
        if (data == MAP_FAILED || !copy)
            return 1;
        close(file);
        copies[i] = (Through *)dlsym(copy, "through");
        if (i == 0 && count > 2 && rename(arguments[2], arguments[1]))
            return 1;
    }
    return (int)down(0);
}
