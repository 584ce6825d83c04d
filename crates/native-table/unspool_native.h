/* Unwind tables compiled to code by unspool (docs/native.md).
 *
 * Each object exports one function, unspool_step. It neither allocates nor locks, keeps no state, and calls nothing
 * but the function in `struct unspool_memory`: it may be called from several threads at once, and from a signal
 * handler if that function may.
 */
#ifndef UNSPOOL_NATIVE_H
#define UNSPOOL_NATIVE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Registers by their DWARF numbers (x86-64: psABI, "DWARF Register Number Mapping"): rax rdx rcx rbx rsi rdi rbp rsp,
 * r8 to r15. The last one, 16, is the address of the frame's code: the program counter, or the return address. */
#define UNSPOOL_REGISTERS 17

struct unspool_frame {
    uint64_t registers[UNSPOOL_REGISTERS];
    /* Bit n: registers[n] is known. Others are not read. */
    uint64_t known;
    /* Written: the CFA of the frame that was left. */
    uint64_t cfa;
};

/* Reads `size` bytes (1 to 8) at `address` as a number without sign; 0, or another number if it cannot. */
typedef int unspool_read(void *argument, uint64_t address, uint64_t size, uint64_t *value);

struct unspool_memory {
    /* Bytes from `stack` up to, not including, `stack_end` are read directly. Both 0: none. */
    uint64_t stack;
    uint64_t stack_end;
    /* All others are asked for here. Null: they cannot be read. */
    unspool_read *read;
    void *argument;
};

enum {
    /* The frame is the caller's now, and its address is a return address: look up the address before it, minus 1. */
    UNSPOOL_CALLER = 0,
    /* The same, but the frame that was left had been interrupted: look up the address itself. */
    UNSPOOL_INTERRUPTED = 1,
    /* The frame is the outermost one; it is as it was. */
    UNSPOOL_OUTERMOST = 2,
    /* No caller can be found. The frame is as it was. */
    UNSPOOL_NO_ROW = -1,            /* the table says nothing of this address */
    UNSPOOL_NO_RULE = -2,           /* the row has no CFA, or no return address */
    UNSPOOL_UNKNOWN_REGISTER = -3,  /* the CFA or the return address needs a register that is not known */
    UNSPOOL_UNREADABLE = -4,        /* the CFA or the return address needs memory that cannot be read */
    UNSPOOL_NO_VALUE = -5,          /* an expression for one of both divides by zero */
    UNSPOOL_NOT_COMPILED = -6       /* the row has an expression that is not compiled: ask the table */
};

/* Steps to the caller. `address` is the address of the code as linked: less the load bias, and for a return address
 * less 1. `bias` is the load bias, which some expressions need. Registers that cannot be recovered are not known
 * afterwards. */
int unspool_step(struct unspool_frame *frame, uint64_t address, uint64_t bias, const struct unspool_memory *memory);

#ifdef __cplusplus
}
#endif

#endif
