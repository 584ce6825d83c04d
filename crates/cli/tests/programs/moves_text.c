// moves_text WAY: moves its own code to memory without a file, at the same addresses, as programs
// do for huge pages. `text` and `all` move a copy over the text or over everything before the
// data, and wait; `changed` moves the text with one other byte; `page` maps new memory over a
// function's page, fills it, and runs it for a while.
#define _GNU_SOURCE
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include "ready.h"

#ifdef __aarch64__
#define MAX_PAGE 65536
#define SKIP "b"
#else
#define MAX_PAGE 4096
#define SKIP "jmp"
#endif
#define OWN_PAGE __attribute__((noinline, noclone, aligned(MAX_PAGE)))
#define ALL_RIGHTS (PROT_READ | PROT_WRITE | PROT_EXEC)
#define NEW_MEMORY (MAP_PRIVATE | MAP_ANONYMOUS)

extern char __executable_start, etext, _init, unused_byte;
static volatile long sink;
static volatile int goes_on = 1;
static long page_bytes;

static char *page_of(const void *address)
{
    return (char *)((uintptr_t)address & -page_bytes);
}

OWN_PAGE void spins(long rounds)
{
    for (long i = 0; i < rounds; i++)
        sink += i;
}

OWN_PAGE void waits(void)
{
    __asm__ volatile(SKIP " 1f; unused_byte: .long 0; 1:");
    ready();
    while (goes_on)
        pause();
    sink = 1;
}

OWN_PAGE void fills(char *page, const char *copy)
{
    volatile char *to = mmap(page, page_bytes, ALL_RIGHTS, NEW_MEMORY | MAP_FIXED, -1, 0);
    for (int i = 0; i < page_bytes; i++)
        to[i] = copy[i];
}

OWN_PAGE void moves(char *first, int is_changed)
{
    size_t size = page_of(&etext) + page_bytes - first;
    char *copy = mmap(NULL, size, ALL_RIGHTS, NEW_MEMORY, -1, 0);
    memcpy(copy, first, size);
    copy[&unused_byte - first] ^= is_changed;
    mremap(copy, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, first);
    mprotect(first, size, PROT_READ | PROT_EXEC);
}

int main(int count, char **arguments)
{
    static char copy[MAX_PAGE];
    page_bytes = sysconf(_SC_PAGESIZE);
    const char *way = count > 1 ? arguments[1] : "";
    if (!strcmp(way, "page")) {
        char *page = page_of((void *)spins);
        memcpy(copy, page, page_bytes);
        fills(page, copy);
        spins(1L << 30);
        return 0;
    }
    moves(page_of(strcmp(way, "all") ? &_init : &__executable_start), !strcmp(way, "changed"));
    waits();
    return 0;
}
