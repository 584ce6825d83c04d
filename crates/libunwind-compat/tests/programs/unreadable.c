/* Walks the own stack before and after a page in the middle of it becomes unreadable. No walk has
 * reached the page before; a walk that reaches it ends there.
 *
 * Usage: unreadable */
#define UNW_LOCAL_ONLY
#include <libunwind.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>

enum { PAGE = 4096, DEPTH = 8 };

static volatile int sink;

static __attribute__((noinline)) void walk(void) {
    unw_context_t context;
    unw_cursor_t cursor;
    void *addresses[64];
    unw_getcontext(&context);
    unw_init_local(&cursor, &context);
    int steps = 0, last;
    while ((last = unw_step(&cursor)) > 0)
        steps++;
    int found = unw_backtrace(addresses, 64);
    printf("%d steps, then %s; %d addresses\n", steps, last < 0 ? "an error" : "none", found);
}

static __attribute__((noinline)) int descend(int depth) {
    volatile char bytes[PAGE / 2];
    bytes[0] = 1;
    if (depth > 0)
        return descend(depth - 1) + bytes[0];
    walk();
    return bytes[0];
}

/* The page of its return address is unreadable meanwhile. The frames of its callees are on other
 * pages. */
static __attribute__((noinline)) int with_page(void) {
    volatile char bytes[3 * PAGE];
    bytes[0] = 1;
    void *page = (void *)((uintptr_t)(__builtin_frame_address(0) + 8) & -PAGE);
    mprotect(page, PAGE, PROT_NONE);
    int result = descend(DEPTH);
    mprotect(page, PAGE, PROT_READ | PROT_WRITE);
    return result + bytes[0];
}

int main(void) {
    sink = with_page();
    walk();
    return 0;
}
