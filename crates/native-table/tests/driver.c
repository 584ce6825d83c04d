/* Steps frames that it reads from standard input with the object that its argument names, and writes what became of
 * them. It reads where the stack is and its bytes, then for each step an address, a load bias and a frame. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "../unspool_native.h"

typedef int step(struct unspool_frame *, uint64_t, uint64_t, const struct unspool_memory *);

/* What only the callback can read: 64 KiB whose bytes follow from their addresses. */
#define FAR UINT64_C(0x7000000000)

static int far_bytes(void *argument, uint64_t address, uint64_t size, uint64_t *value)
{
    ++*(uint64_t *)argument;
    if (address < FAR || address - FAR > 0x10000 - size)
        return 1;
    *value = 0;
    for (uint64_t n = 0; n < size; n++)
        *value |= ((address + n) * 167 >> 3 & 0xff) << 8 * n;
    return 0;
}

static void take(void *into, size_t size)
{
    if (fread(into, 1, size, stdin) != size)
        exit(3);
}

int main(int argc, char **argv)
{
    void *object = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    if (!object) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    step *unspool_step = (step *)dlsym(object, "unspool_step");
    struct unspool_memory memory = {0, 0, far_bytes, NULL};
    uint64_t asked = 0;
    memory.argument = &asked;
    take(&memory.stack, 8);
    take(&memory.stack_end, 8);
    char *stack = mmap((void *)memory.stack, memory.stack_end - memory.stack, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (stack != (char *)memory.stack) {
        perror("mmap");
        return 2;
    }
    take(stack, memory.stack_end - memory.stack);
    struct {
        uint64_t address, bias;
        struct unspool_frame frame;
    } in;
    while (fread(&in, sizeof in, 1, stdin) == 1) {
        int64_t status = unspool_step(&in.frame, in.address, in.bias, &memory);
        fwrite(&status, 8, 1, stdout);
        fwrite(&in.frame, sizeof in.frame, 1, stdout);
    }
    return 0;
}
