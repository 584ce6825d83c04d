/* Walks its own stack by native tables, one object for the program and one for libc, and compares the result
 * with backtrace(3). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>

#include "unspool_native.h"

typedef int step(struct unspool_frame *, uint64_t, uint64_t, const struct unspool_memory *);

static step *steps[2];
static char *top;

struct module {
    uint64_t address, bias;
    int number;
};

/* The program comes first; of the others only libc is needed. */
static int find(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct module *wanted = argument;
    (void)size;
    for (int n = 0; n < info->dlpi_phnum; n++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[n];
        uint64_t start = info->dlpi_addr + segment->p_vaddr;
        if (segment->p_type == PT_LOAD && wanted->address - start < segment->p_memsz) {
            wanted->bias = info->dlpi_addr;
            wanted->number = *info->dlpi_name ? strstr(info->dlpi_name, "libc.so") ? 1 : -1 : 0;
            return 1;
        }
    }
    return 0;
}

static int walk(uint64_t *found, int most)
{
    ucontext_t context;
    getcontext(&context);
    const greg_t *g = context.uc_mcontext.gregs;
    const int order[] = {REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI, REG_RBP, REG_RSP, REG_R8,
                         REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15, REG_RIP};
    struct unspool_frame frame = {.known = 0x1ffff};
    for (int n = 0; n < UNSPOOL_REGISTERS; n++)
        frame.registers[n] = (uint64_t)g[order[n]];
    struct unspool_memory memory = {frame.registers[7], (uint64_t)top, NULL, NULL};
    int count = 0, status = UNSPOOL_INTERRUPTED;
    while (count < most) {
        uint64_t address = frame.registers[16] - (status == UNSPOOL_CALLER);
        struct module module = {address, 0, -1};
        if (!dl_iterate_phdr(find, &module) || module.number < 0)
            return -1;
        status = steps[module.number](&frame, address - module.bias, module.bias, &memory);
        if (status == UNSPOOL_OUTERMOST)
            return count;
        if (status < 0) {
            printf("status %d at %#lx\n", status, (unsigned long)(address - module.bias));
            return -1;
        }
        found[count++] = frame.registers[16];
    }
    return count;
}

static __attribute__((noinline)) int deep(int n, volatile char *room)
{
    volatile char own[n * 16 + 1];
    own[0] = *room;
    if (n > 0)
        return deep(n - 1, own) + own[0];
    uint64_t found[64];
    void *known[64];
    int count = walk(found, 64), expected = backtrace(known, 64);
    /* The first frame of backtrace is in this function, like that of walk. */
    int differences = count != expected;
    for (int i = 1; i < count && i < expected; i++)
        differences += found[i] != (uint64_t)known[i];
    printf("%d frames, %d by backtrace, %d differences\n", count, expected, differences);
    return 0;
}

int main(int argc, char **argv)
{
    char start = 0;
    for (int n = 0; n < 2 && n + 1 < argc; n++) {
        void *object = dlopen(argv[n + 1], RTLD_NOW);
        steps[n] = object ? (step *)dlsym(object, "unspool_step") : NULL;
        if (!steps[n])
            return 2;
    }
    extern char **environ;
    top = (char *)environ;
    return deep(10, &start);
}
