/* Code written at run time, and an exception through it. Prints what happens. Usage: jit [THREADS [some]]
 * With "some" without what libgcc cannot do since 13: a section that is registered twice ends in an abort, and a table in
 * a fault. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <unwind.h>

void __register_frame(void *);
void __deregister_frame(void *);
void __register_frame_info(void *, void *);
void *__deregister_frame_info(void *);
void __register_frame_info_table(void *, void *);

struct dwarf_eh_bases {
    void *text, *data, *function;
};
void *_Unwind_Find_FDE(void *, struct dwarf_eh_bases *);

/* Calls its argument with frames of two sizes, from two functions: push rbx; sub rsp, N; call rdi; add; pop; ret. */
struct code {
    unsigned char functions[2][32];
    /* A CIE, two FDEs, a terminator. */
    unsigned char frames[96];
};

static unsigned char *put(unsigned char *to, const void *bytes, size_t size) {
    memcpy(to, bytes, size);
    return to + size;
}

static void write_function(unsigned char *to, unsigned char size) {
    const unsigned char code[] = {0x53, 0x48, 0x83, 0xec, size, 0xff, 0xd7, 0x48, 0x83, 0xc4, size, 0x5b, 0xc3};
    put(to, code, sizeof code);
}

static unsigned char *write_fde(unsigned char *at, unsigned char *cie, unsigned char *function, unsigned char size) {
    int32_t back = (int32_t)(at + 4 - cie);
    uint32_t length = 28;
    uint64_t start = (uint64_t)function, bytes = 13;
    /* advance 1; CFA at 16, rbx saved; advance 4; CFA at 16 + size; padding. */
    const unsigned char program[] = {0x41, 0x0e, 16, 0x83, 2, 0x44, 0x0e, (unsigned char)(16 + size)};
    at = put(at, &length, 4);
    at = put(at, &back, 4);
    at = put(at, &start, 8);
    at = put(at, &bytes, 8);
    return put(at, program, sizeof program);
}

static struct code *make(unsigned char size) {
    struct code *made = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char *at = made->frames;
    uint32_t length = 16;
    /* Version 1, no augmentation, factors 1 and -8, column 16; CFA = rsp + 8, return address at CFA - 8. */
    const unsigned char cie[] = {0, 0, 0, 0, 1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1, 0, 0};
    at = put(at, &length, 4);
    at = put(at, cie, sizeof cie);
    for (int n = 0; n < 2; n++) {
        write_function(made->functions[n], size + 16 * n);
        at = write_fde(at, made->frames, made->functions[n], size + 16 * n);
    }
    memset(at, 0, 4);
    return made;
}

static unsigned char *first_fde(struct code *code) { return code->frames + 20; }

static __thread void *landing[5];
static __thread int frames, ended;

static _Unwind_Reason_Code stop(int version, _Unwind_Action action, _Unwind_Exception_Class class,
                                struct _Unwind_Exception *exception, struct _Unwind_Context *context, void *code) {
    (void)version, (void)class, (void)exception;
    uintptr_t ip = _Unwind_GetIP(context);
    if (ip - (uintptr_t)code < 64)
        frames++;
    if (action & _UA_END_OF_STACK)
        ended = 1;
    /* Past the generated frame: the jump stands for a handler. */
    if (frames && ip - (uintptr_t)code >= 64)
        __builtin_longjmp(landing, 1);
    return ended ? _URC_NORMAL_STOP : _URC_NO_REASON;
}

static __thread void *generated;

static void throws(void) {
    static __thread struct _Unwind_Exception exception;
    _Unwind_ForcedUnwind(&exception, stop, generated);
}

/* Whether an unwind passes the function; else it ends there. */
static __attribute__((noinline)) int passes(struct code *code, int function) {
    generated = code;
    frames = ended = 0;
    if (__builtin_setjmp(landing) == 0)
        ((void (*)(void (*)(void)))code->functions[function])(throws);
    return frames == 1 && !ended;
}

static int finds(struct code *code, int function) {
    struct dwarf_eh_bases bases = {0, 0, 0};
    unsigned char *fde = _Unwind_Find_FDE(code->functions[function] + 5, &bases);
    return fde == first_fde(code) + 32 * function && bases.function == code->functions[function];
}

static void show(const char *what, struct code *code) {
    printf("%s: %d %d, found %d %d\n", what, passes(code, 0), passes(code, 1), finds(code, 0), finds(code, 1));
}

static void *registers(void *argument) {
    (void)argument;
    int failed = 0;
    for (int round = 0; round < 200; round++) {
        struct code *code = make(32);
        __register_frame(code->frames);
        failed += !passes(code, 0) || !passes(code, 1);
        __deregister_frame(code->frames);
        munmap(code, 4096);
    }
    return (void *)(intptr_t)failed;
}

static volatile int is_ended;

static void *throws_through(void *code) {
    intptr_t failed = 0;
    while (!is_ended)
        failed += !passes(code, 0);
    return (void *)failed;
}

static void *registers_others(void *other) {
    while (!is_ended) {
        __register_frame(((struct code *)other)->frames);
        __deregister_frame(((struct code *)other)->frames);
    }
    return NULL;
}

/* A section of functions that nobody calls. */
static unsigned char *make_section(int count) {
    unsigned char *section = malloc(24 + 32 * (size_t)count), *at = section + 20;
    unsigned char *functions = mmap(NULL, 16 * (size_t)count, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(section, make(16)->frames, 20);
    for (int n = 0; n < count; n++)
        at = write_fde(at, section, functions + 16 * n, 16);
    memset(at, 0, 4);
    return section;
}

/* Exceptions through registered code while other threads register, and in children that are forked meanwhile. */
static void stress(struct code *code, struct code *other) {
    pthread_t threads[3];
    void *result;
    intptr_t failed = 0;
    unsigned char *section = make_section(20000);
    __register_frame(code->frames);
    for (int n = 0; n < 2; n++)
        pthread_create(&threads[n], NULL, throws_through, code);
    for (int round = 0; round < 5; round++) {
        __register_frame(section);
        __deregister_frame(section);
    }
    is_ended = 1;
    for (int n = 0; n < 2; n++) {
        pthread_join(threads[n], &result);
        failed += (intptr_t)result;
    }
    printf("beside a large section %ld\n", (long)failed);
    is_ended = 0;
    pthread_create(&threads[2], NULL, registers_others, other);
    failed = 0;
    for (int round = 0; round < 500; round++) {
        pid_t child = fork();
        int status;
        if (child == 0) {
            alarm(20);
            _exit(!passes(code, 0) || !passes(code, 1));
        }
        waitpid(child, &status, 0);
        failed += status != 0;
    }
    is_ended = 1;
    pthread_join(threads[2], NULL);
    printf("in children %ld\n", (long)failed);
}

int main(int argc, char **argv) {
    struct code *code = make(16), *other = make(48);
    long object[8], list[] = {(long)code->frames, (long)other->frames, 0};
    struct dwarf_eh_bases bases;
    printf("own %d\n", _Unwind_Find_FDE((char *)main + 1, &bases) != NULL && bases.function == (void *)main);
    /* Of return addresses: that of a last call is behind its function. */
    printf("enclosing %d %d\n", _Unwind_FindEnclosingFunction((char *)main + 1) == (void *)main,
           _Unwind_FindEnclosingFunction((void *)main) == (void *)main);
    show("nothing", code);
    __register_frame(code->frames);
    show("section", code);
    show("section", code);
    __deregister_frame(code->frames);
    show("removed", code);
    int all = argc < 3;
    if (all) {
        __register_frame(code->frames);
        __register_frame(code->frames);
        __deregister_frame(code->frames);
        show("once of two", code);
        __deregister_frame(code->frames);
        show("both", code);
    }
    __register_frame_info(code->frames, object);
    show("info", code);
    printf("object %d\n", __deregister_frame_info(code->frames) == object);
    if (all) {
        __register_frame_info_table(list, object);
        show("table", code);
        show("table", other);
        printf("object %d\n", __deregister_frame_info(list) == object);
    }
    /* Other code at the address: frames have another size. */
    __register_frame(code->frames);
    passes(code, 0);
    __deregister_frame(code->frames);
    struct code *again = make(80);
    memcpy(code->functions, again->functions, sizeof code->functions);
    unsigned char *at = first_fde(code);
    for (int n = 0; n < 2; n++)
        at = write_fde(at, code->frames, code->functions[n], 80 + 16 * n);
    __register_frame(code->frames);
    show("new", code);
    pid_t child = fork();
    if (child == 0) {
        __register_frame(other->frames);
        show("child", other);
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    pthread_t threads[64];
    int count = argc > 1 ? atoi(argv[1]) : 0, failed = 0;
    for (int n = 0; n < count; n++)
        pthread_create(&threads[n], NULL, registers, NULL);
    for (int n = 0; n < count; n++) {
        void *result;
        pthread_join(threads[n], &result);
        failed += (int)(intptr_t)result;
    }
    printf("failed %d\n", failed);
    if (getenv("STRESS"))
        stress(code, other);
    if (getenv("LLVM_FORM")) {
        __register_frame(first_fde(other));
        show("one", other);
    }
    return 0;
}
