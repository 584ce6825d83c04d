/* Throws through frames of all kinds; prints what is caught. With an argument, out of signal handlers, too. */
#include <alloca.h>
#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <pthread.h>
#include <string>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

/* 64 functions that save each subset of the six registers that calls preserve, clobber it, and call their argument;
 * and one that calls its argument with patterns in all six, and returns whether they are there afterwards. */
asm(R"(
    .altmacro
    .macro save register, bit, mask
    .if (\mask >> \bit) & 1
    push %\register
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset %\register, 0
    mov $-1, %\register
    .set pushed, pushed + 1
    .endif
    .endm
    .macro subset mask
    .cfi_startproc
subset_\mask:
    .set pushed, 0
    save rbx, 0, \mask
    save rbp, 1, \mask
    save r12, 2, \mask
    save r13, 3, \mask
    save r14, 4, \mask
    save r15, 5, \mask
    .ifeq pushed - (pushed / 2) * 2
    push %rax
    .cfi_adjust_cfa_offset 8
    .endif
    call *%rdi
    ud2
    .cfi_endproc
    .endm
    .text
    .set mask, 0
    .rept 64
    subset %mask
    .set mask, mask + 1
    .endr
    .section .data.rel.ro, "aw"
    .balign 8
subsets:
    .set mask, 0
    .macro entry mask
    .quad subset_\mask
    .endm
    .rept 64
    entry %mask
    .set mask, mask + 1
    .endr
    .text
    .noaltmacro
    .type with_patterns, @function
with_patterns:
    .cfi_startproc
    .irp register, rbx, rbp, r12, r13, r14, r15
    push %\register
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset %\register, 0
    .endr
    push %rax
    .cfi_adjust_cfa_offset 8
    mov $0x11, %ebx
    mov $0x22, %ebp
    mov $0x33, %r12d
    mov $0x44, %r13d
    mov $0x55, %r14d
    mov $0x66, %r15d
    call *%rdi
    sub $0x11, %rbx
    sub $0x22, %rbp
    sub $0x33, %r12
    sub $0x44, %r13
    sub $0x55, %r14
    sub $0x66, %r15
    or %rbp, %rbx
    or %r12, %rbx
    or %r13, %rbx
    or %r14, %rbx
    or %r15, %rbx
    xor %eax, %eax
    test %rbx, %rbx
    setz %al
    pop %rdx
    .cfi_adjust_cfa_offset -8
    .irp register, r15, r14, r13, r12, rbp, rbx
    pop %\register
    .cfi_adjust_cfa_offset -8
    .cfi_restore %\register
    .endr
    ret
    .cfi_endproc
    .size with_patterns, . - with_patterns
    .type faults_at_once, @function
faults_at_once:
    .cfi_startproc
    mov (%rdi), %eax
    ret
    .cfi_endproc
    .size faults_at_once, . - faults_at_once
)");

extern "C" void (*const subsets[64])(void (*)());
extern "C" int with_patterns(void (*)());
extern "C" int faults_at_once(const int *);

struct Guard {
    const char *name;
    ~Guard() { printf("~%s\n", name); }
};

static volatile int sink;

static __attribute__((noinline)) void thrower() { throw 7; }

static int subset;

static void catches_subset() {
    try {
        subsets[subset](thrower);
    } catch (int number) {
        sink += number;
    }
}

static void registers() {
    int kept = 0;
    for (subset = 0; subset < 64; subset++)
        kept += with_patterns(catches_subset);
    printf("registers kept by %d of 64\n", kept);
}

static __attribute__((noinline)) int with_alloca(int bytes) {
    Guard guard{"alloca"};
    volatile char *room = static_cast<char *>(alloca(bytes));
    room[0] = 1;
    thrower();
    return room[0];
}

static __attribute__((noinline)) int realigned(int bytes) {
    Guard guard{"realigned"};
    alignas(64) volatile char room[64];
    volatile char *more = static_cast<char *>(alloca(bytes));
    room[0] = more[0] = reinterpret_cast<uintptr_t>(room) % 64 == 0;
    return with_alloca(bytes) + room[0] + more[0];
}

static __attribute__((noinline)) int large() {
    Guard guard{"large"};
    volatile char room[600 << 10];
    room[0] = room[sizeof room - 1] = 1;
    return realigned(100) + room[0];
}

static void frames() {
    try {
        sink = large();
    } catch (int number) {
        printf("caught %d\n", number);
    }
}

struct Nested {
    ~Nested() {
        try {
            throw std::string("inner");
        } catch (const std::string &text) {
            printf("caught %s, %d uncaught\n", text.c_str(), std::uncaught_exceptions());
        }
    }
};

static __attribute__((noinline)) void nests() {
    Nested nested, again;
    thrower();
}

static void nested() {
    try {
        nests();
    } catch (...) {
        try {
            throw;
        } catch (int number) {
            printf("caught %d\n", number);
        }
    }
}

static void on_signal(int number) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, number);
    sigprocmask(SIG_UNBLOCK, &set, nullptr);
    throw number;
}

static __attribute__((noinline)) int reads(const int *at) {
    Guard guard{"reads"};
    return *const_cast<const volatile int *>(at) + 1;
}

static void signals() {
    static char stack[64 << 10];
    stack_t alternate = {};
    alternate.ss_sp = stack;
    alternate.ss_size = sizeof stack;
    sigaltstack(&alternate, nullptr);
    for (int flags : {0, SA_ONSTACK}) {
        struct sigaction action = {};
        action.sa_handler = on_signal;
        action.sa_flags = flags;
        sigaction(SIGSEGV, &action, nullptr);
        for (auto function : {reads, faults_at_once})
            try {
                sink = function(nullptr);
            } catch (int number) {
                printf("caught signal %d\n", number);
            }
    }
}

static ucontext_t outside, inside;
static char coroutine_stack[64 << 10];

struct Switching {
    ~Switching() {
        printf("switching\n");
        swapcontext(&inside, &outside);
        printf("switched back\n");
    }
};

static jmp_buf jump;

/* Leaves a forced unwind, and the unwinder with it. */
static _Unwind_Reason_Code leave(int, _Unwind_Action action, _Unwind_Exception_Class, _Unwind_Exception *,
                                 _Unwind_Context *, void *steps) {
    if (action & _UA_END_OF_STACK || --*static_cast<int *>(steps) == 0)
        longjmp(jump, 1);
    return _URC_NO_REASON;
}

static __attribute__((noinline)) void force(int *steps) {
    static _Unwind_Exception exception;
    exception = {};
    _Unwind_ForcedUnwind(&exception, leave, steps);
}

static void coroutine() {
    try {
        Switching switching;
        thrower();
    } catch (int number) {
        printf("caught %d in a coroutine\n", number);
    }
    /* More often than the unwinder has buffers. */
    static int left;
    for (left = 0; left < 200; left++) {
        static int steps;
        steps = left % 3 + 1;
        if (setjmp(jump) == 0)
            force(&steps);
    }
    try {
        thrower();
    } catch (int number) {
        printf("caught %d after %d jumps\n", number, left);
    }
}

static void coroutines() {
    getcontext(&inside);
    inside.uc_stack.ss_sp = coroutine_stack;
    inside.uc_stack.ss_size = sizeof coroutine_stack;
    inside.uc_link = &outside;
    makecontext(&inside, coroutine, 0);
    swapcontext(&outside, &inside);
    /* The coroutine is between two landing pads. */
    nested();
    swapcontext(&outside, &inside);
}

static void *throws_often(void *) {
    int caught = 0;
    for (int round = 0; round < 200; round++)
        try {
            subsets[round % 64](thrower);
        } catch (int number) {
            caught += number == 7;
        }
    return reinterpret_cast<void *>(static_cast<intptr_t>(caught));
}

static void threads() {
    pthread_t threads[64];
    intptr_t caught = 0;
    for (auto &thread : threads)
        pthread_create(&thread, nullptr, throws_often, nullptr);
    for (auto thread : threads) {
        void *result;
        pthread_join(thread, &result);
        caught += reinterpret_cast<intptr_t>(result);
    }
    printf("threads caught %td\n", caught);
}

static __attribute__((noinline)) void unexpected() noexcept {
    Guard guard{"unexpected"};
    thrower();
}

/* What a child prints, and how it ends. */
static void child(void (*function)()) {
    fflush(stdout);
    pid_t process = fork();
    if (process == 0) {
        function();
        fflush(stdout);
        _exit(0);
    }
    int status;
    waitpid(process, &status, 0);
    printf("child: %d %d\n", WEXITSTATUS(status), WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}

static void forks() {
    try {
        thrower();
    } catch (int) {
        child(frames);
        child([] { throw; });
    }
    child([] {
        try {
            unexpected();
        } catch (...) {
            printf("wrong\n");
        }
    });
}

int main(int argc, char **) {
    registers();
    frames();
    nested();
    coroutines();
    threads();
    forks();
    if (argc > 1)
        signals();
}
