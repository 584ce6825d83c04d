// Works in code that does not keep the frame pointer, and whose stack pointer is only known at run time (0 is
// subtracted from it, and a vector register keeps it). `assembler` has an unwind table only with -DDESCRIBED;
// in a separate library, with -DLIBRARY, there is no table at all; and similar code is generated at
// run time.
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>

#ifdef DESCRIBED
#define CFI(words) words "\n"
#else
#define CFI(words)
#endif

#ifdef LIBRARY
#define NAME "library_assembler"
#else
#define NAME "assembler"
#endif

#define ROUNDS 600000000

__asm__(".text\n"
        ".globl " NAME "\n"
        ".type " NAME ", @function\n"
        NAME ":\n" CFI(".cfi_startproc")
        "push %rbp\n" CFI(".cfi_def_cfa_offset 16") CFI(".cfi_offset %rbp, -16")
        "movq %rsp, %xmm15\n"
        "sub %rsi, %rsp\n"
        "mov $0x55, %ebp\n"
        "1: sub $1, %rdi\n"
        "jnz 1b\n"
        "movq %xmm15, %rsp\n"
        "pop %rbp\n" CFI(".cfi_def_cfa_offset 8")
        "ret\n" CFI(".cfi_endproc")
        ".size " NAME ", . - " NAME "\n");

#ifndef LIBRARY
void assembler(long rounds, long zero);
void library_assembler(long rounds, long zero);

// The same without the subtraction; and with the frame pointer.
static const unsigned char made[] = {
    0x55, 0x66, 0x4c, 0x0f, 0x6e, 0xfc, 0xbd, 0x55, 0,    0,    0,
    0x48, 0x83, 0xef, 0x01, 0x75, 0xfa, 0x66, 0x4c, 0x0f, 0x7e, 0xfc, 0x5d, 0xc3,
};
static const unsigned char made_with_frame_pointer[] = {
    0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xef, 0x01, 0x75, 0xfa, 0x5d, 0xc3,
};

static void run(const unsigned char *code, size_t size)
{
    void *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(memory, code, size);
    ((void (*)(long))memory)(ROUNDS);
}

int main(int count, char **words)
{
    if (count < 2)
        return 1;
    if (strcmp(words[1], "assembler") == 0)
        assembler(ROUNDS, 0);
    if (strcmp(words[1], "library") == 0)
        library_assembler(ROUNDS, 0);
    if (strcmp(words[1], "made") == 0)
        run(made, sizeof made);
    if (strcmp(words[1], "made-with-frame-pointer") == 0)
        run(made_with_frame_pointer, sizeof made_with_frame_pointer);
    return 0;
}
#endif
