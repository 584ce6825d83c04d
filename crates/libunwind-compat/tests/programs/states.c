/* Prints the rows of each frame's procedure, and the caller by the row of the frame's address.
   Usage: states */
#define UNW_LOCAL_ONLY
#include <libunwind.h>
#include <stdio.h>
#include <stdlib.h>

static volatile int sink;

/* The cursor for a row, and the row's procedure. */
struct frame {
    unw_cursor_t cursor;
    unw_word_t ip, start, caller;
};

static int on_state(void *argument, void *state, size_t size, unw_word_t start, unw_word_t end) {
    struct frame *frame = argument;
    /* The callback may ask for other data. */
    unw_proc_info_t other;
    if (size == 0 || unw_get_proc_info_by_ip(unw_local_addr_space, (unw_word_t)qsort + 1, &other, NULL))
        abort();
    printf(" %ld-%ld", (long)(start - frame->start), (long)(end - frame->start));
    if (frame->ip - 1 >= start && frame->ip - 1 < end) {
        printf("=%d", unw_apply_reg_state(&frame->cursor, state));
        unw_get_reg(&frame->cursor, UNW_REG_IP, &frame->caller);
    }
    return 0;
}

static void walk(void) {
    unw_context_t context;
    unw_cursor_t cursor;
    unw_getcontext(&context);
    unw_init_local(&cursor, &context);
    while (unw_step(&cursor) > 0) {
        struct frame frame = {.cursor = cursor};
        unw_proc_info_t info;
        unw_word_t caller = 0;
        unw_get_proc_info(&cursor, &info);
        unw_get_reg(&cursor, UNW_REG_IP, &frame.ip);
        frame.start = info.start_ip;
        int result = unw_reg_states_iterate(&cursor, on_state, &frame);
        unw_cursor_t next = cursor;
        if (unw_step(&next) <= 0)
            break;
        unw_get_reg(&next, UNW_REG_IP, &caller);
        printf(" %d %s\n", result, caller == frame.caller ? "to the caller" : "astray");
    }
    printf("\n");
}

#define AT_THE_BOTTOM walk()
#include "descent.h"

int main(void) {
    int numbers[] = {3, 1, 2};
    qsort(numbers, 3, sizeof *numbers, compare);
    return 0;
}
