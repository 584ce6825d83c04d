/* How many bytes of a signal handler's stack a function needs, at its first call and at its second. Without a name, those
 * of the functions. Usage: stack [NAME] */
#define UNW_LOCAL_ONLY
#include <libunwind.h>
#include <unwind.h>

#include <algorithm>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <sys/mman.h>

enum { SIZE = 256 << 10, UNTOUCHED = 0x5a };

static char *frame;
static unw_context_t context;
static unw_cursor_t cursor;
static jmp_buf out;
static volatile int sink;

/* Everything below is what the next call needs. */
#define MARK asm volatile("mov %%rsp, %0" : "=r"(frame))

static void getcontext_entry() {
    MARK;
    unw_getcontext(&context);
}

static void init_entry() {
    MARK;
    unw_init_local2(&cursor, &context, 0);
}

static void step_entry() {
    MARK;
    while (unw_step(&cursor) > 0)
        sink++;
}

static void get_reg_entry() {
    unw_word_t word;
    MARK;
    for (int number = UNW_X86_64_RAX; number <= UNW_X86_64_RIP; number++)
        unw_get_reg(&cursor, number, &word);
}

static void set_reg_entry() {
    unw_word_t word;
    MARK;
    unw_get_reg(&cursor, UNW_X86_64_RBX, &word);
    unw_set_reg(&cursor, UNW_X86_64_RBX, word);
}

static void save_loc_entry() {
    unw_save_loc_t location;
    MARK;
    unw_get_save_loc(&cursor, UNW_X86_64_RBX, &location);
}

static void is_signal_frame_entry() {
    MARK;
    unw_is_signal_frame(&cursor);
}

static void proc_info_entry() {
    unw_proc_info_t info;
    MARK;
    unw_get_proc_info(&cursor, &info);
}

static void proc_name_entry() {
    static char name[256];
    unw_word_t offset;
    MARK;
    unw_get_proc_name(&cursor, name, sizeof name, &offset);
}

static void resume_entry() {
    unw_getcontext(&context);
    unw_init_local(&cursor, &context);
    MARK;
    if (sink++ % 2 == 0)
        unw_resume(&cursor);
}

static void backtrace_entry() {
    static void *addresses[64];
    MARK;
    unw_backtrace(addresses, 64);
}

static _Unwind_Reason_Code visit(_Unwind_Context *context, void *) {
    sink += _Unwind_GetIP(context) != 0;
    return _URC_NO_REASON;
}

static void unwind_backtrace_entry() {
    MARK;
    _Unwind_Backtrace(visit, nullptr);
}

static _Unwind_Exception exception;

static __attribute__((noinline)) void raise_exception() {
    exception = {};
    MARK;
    _Unwind_RaiseException(&exception);
}

static _Unwind_Reason_Code stop(int, _Unwind_Action action, _Unwind_Exception_Class, _Unwind_Exception *,
                                _Unwind_Context *, void *) {
    if (action & _UA_END_OF_STACK)
        longjmp(out, 1);
    return _URC_NO_REASON;
}

static __attribute__((noinline)) void force_unwind() {
    exception = {};
    MARK;
    _Unwind_ForcedUnwind(&exception, stop, nullptr);
}

struct Guard {
    ~Guard() { sink++; }
};

template <void (*thrower)()> static __attribute__((noinline)) void throw_deep(int levels) {
    Guard guard;
    if (levels == 0)
        thrower();
    else
        throw_deep<thrower>(levels - 1);
    sink++;
}

static void raise_entry() {
    try {
        throw_deep<raise_exception>(10);
    } catch (...) {
    }
}

static void forced_entry() {
    if (setjmp(out) == 0)
        throw_deep<force_unwind>(10);
}

static void (*entry)();

static void handler(int) { entry(); }

static const struct {
    const char *name;
    void (*call)();
} entries[] = {
    {"_Unwind_RaiseException", raise_entry},
    {"_Unwind_ForcedUnwind", forced_entry},
    {"_Unwind_Backtrace", unwind_backtrace_entry},
    {"unw_backtrace", backtrace_entry},
    {"unw_step", step_entry},
    {"unw_getcontext", getcontext_entry},
    {"unw_init_local2", init_entry},
    {"unw_get_reg", get_reg_entry},
    {"unw_set_reg", set_reg_entry},
    {"unw_get_save_loc", save_loc_entry},
    {"unw_is_signal_frame", is_signal_frame_entry},
    {"unw_get_proc_info", proc_info_entry},
    {"unw_get_proc_name", proc_name_entry},
    {"unw_resume", resume_entry},
};

static __attribute__((noinline)) int deep(int levels) {
    if (levels > 0)
        return deep(levels - 1) + 1;
    unw_getcontext(&context);
    unw_init_local(&cursor, &context);
    return raise(SIGUSR1);
}

int main(int argc, char **argv) {
    auto stack = static_cast<char *>(mmap(nullptr, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    stack_t alternate = {};
    alternate.ss_sp = stack;
    alternate.ss_size = SIZE;
    sigaltstack(&alternate, nullptr);
    struct sigaction action = {};
    action.sa_handler = handler;
    action.sa_flags = SA_ONSTACK;
    sigaction(SIGUSR1, &action, nullptr);
    for (auto &wanted : entries)
        if (argc > 1 && strcmp(wanted.name, argv[1]) == 0)
            entry = wanted.call;
    if (!entry) {
        for (auto &known : entries)
            puts(known.name);
        return 0;
    }
    for (int round = 0; round < 2; round++) {
        memset(stack, UNTOUCHED, SIZE);
        if (deep(10) < 10)
            return 1;
        char *lowest = std::find_if(stack, stack + SIZE, [](char byte) { return byte != UNTOUCHED; });
        printf("%td\n", frame - lowest);
    }
    return 0;
}
