// Waits below code without a file and a table, which keeps a frame pointer. With an argument, it
// restores the stack pointer from a vector register. The code is in the heap with -DIN_HEAP.
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>
#include "ready.h"

#define KEPT __attribute__((noipa))

static volatile long sink;

#ifdef __aarch64__
// stp x29, x30, [sp, #-48]!; mov x29, sp; blr x0; ldp x29, x30, [sp], #48; ret
static const unsigned CODE[] = { 0xa9bd7bfd, 0x910003fd, 0xd63f0000, 0xa8c37bfd, 0xd65f03c0 };

// The same, but behind the call: fmov d0, x29; fmov x16, d0; mov sp, x16
static const unsigned BY_VECTOR[] = { 0xa9bd7bfd, 0x910003fd, 0xd63f0000, 0x9e6703a0,
                                      0x9e660010, 0x9100021f, 0xa8c37bfd, 0xd65f03c0 };
#else
// push %rbp; mov %rsp, %rbp; sub $32, %rsp; call *%rdi; leave; ret
static const unsigned char CODE[] = { 0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec,
                                      0x20, 0xff, 0xd7, 0xc9, 0xc3 };

// The same, but: movq %rbp, %xmm0; movq %xmm0, %rsp; pop %rbp; ret
static const unsigned char BY_VECTOR[] = { 0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x20, 0xff, 0xd7, 0x66,
                                           0x48, 0x0f, 0x6e, 0xc5, 0x66, 0x48, 0x0f, 0x7e, 0xc4, 0x5d, 0xc3 };
#endif

static KEPT void waits(void)
{
    ready();
    for (;;)
        pause();
}

static KEPT void calls(void (*made)(void (*)(void)))
{
    made(waits);
    sink++;
}

int main(int count, char **arguments)
{
    (void)arguments;
#ifdef IN_HEAP
    void *made = sbrk(0);
    sbrk(4096);
    if (mprotect(made, 4096, PROT_READ | PROT_WRITE | PROT_EXEC) != 0)
        return 1;
#else
    void *made = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED)
        return 1;
#endif
    if (count > 1)
        memcpy(made, BY_VECTOR, sizeof BY_VECTOR);
    else
        memcpy(made, CODE, sizeof CODE);
    __builtin___clear_cache(made, (char *)made + sizeof BY_VECTOR);
    calls((void (*)(void (*)(void)))made);
    return 0;
}
