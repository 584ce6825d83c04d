/* Throws and catches where no system call is left but to write and to go. Usage: sealed_throw PLACE SEAL */
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdexcept>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

static bool is_strict;

static void say(const char *text) {
    if (write(STDOUT_FILENO, text, strlen(text)) < 0)
        abort();
}

struct Guard {
    ~Guard() { asm volatile(""); }
};

/* A frame larger than a page, whose size is not known beforehand: it has a frame pointer. */
static __attribute__((noinline)) int deep(int levels, bool is_small) {
    Guard guard;
    auto room = static_cast<volatile char *>(__builtin_alloca(is_small ? 16 : 5000 + levels));
    *room = 1;
    if (levels == 0)
        throw std::runtime_error("deep\n");
    return deep(levels - 1, is_small) + *room;
}

static void seal() {
    if (is_strict) {
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0) != 0)
            abort();
        return;
    }
    sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) != 0)
        abort();
}

/* The first throw of the process, and others; then the end of the thread. */
static void throws(bool is_small) {
    /* The allocator has to have its memory before. */
    void *volatile block = malloc(60000);
    free(block);
    seal();
    for (int round = 0; round < 3; round++)
        try {
            deep(is_small ? 3 : 10, is_small);
        } catch (const std::logic_error &) {
            say("wrong\n");
        } catch (const std::exception &error) {
            say(error.what());
        }
    syscall(SYS_exit, 0);
}

static void *thread(void *) {
    throws(false);
    return nullptr;
}

static void fibre() { throws(false); }

static void small_fibre() { throws(true); }

static void on_stack(void *stack, size_t size, void (*run)()) {
    static ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = stack;
    context.uc_stack.ss_size = size;
    makecontext(&context, run, 0);
    setcontext(&context);
}

/* Throws out of a handler on a stack of its own, through the frames that it has interrupted. */
static void handler(int) { deep(3, true); }

static void throws_in_handler() {
    static char stack[64 << 10];
    stack_t alternate = {stack, 0, sizeof stack};
    struct sigaction action = {};
    action.sa_handler = handler;
    action.sa_flags = SA_ONSTACK | SA_NODEFER;
    if (sigaltstack(&alternate, nullptr) != 0 || sigaction(SIGSEGV, &action, nullptr) != 0)
        abort();
    void *volatile block = malloc(60000);
    free(block);
    seal();
    for (int round = 0; round < 3; round++)
        try {
            *static_cast<volatile int *>(nullptr) = 1;
        } catch (const std::exception &error) {
            say(error.what());
        }
    syscall(SYS_exit, 0);
}

int main(int argc, char **argv) {
    static char in_module[128 << 10];
    enum { SMALL = 8 << 10, PAGE = 4096 };
    if (argc != 3)
        return 2;
    is_strict = strcmp(argv[2], "strict") == 0;
    if (strcmp(argv[1], "main") == 0)
        throws(false);
    if (strcmp(argv[1], "handler") == 0)
        throws_in_handler();
    if (strcmp(argv[1], "thread") == 0) {
        pthread_t other;
        pthread_create(&other, nullptr, thread, nullptr);
        pthread_join(other, nullptr);
        return 0;
    }
    if (strcmp(argv[1], "fibre") == 0)
        on_stack(malloc(sizeof in_module), sizeof in_module, fibre);
    if (strcmp(argv[1], "fibre-in-module") == 0)
        on_stack(in_module, sizeof in_module, fibre);
    if (strcmp(argv[1], "small-fibre") == 0) {
        auto stack = static_cast<char *>(
            mmap(nullptr, PAGE + SMALL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        mprotect(stack, PAGE, PROT_NONE);
        on_stack(stack + PAGE, SMALL, small_fibre);
    }
    return 2;
}
