/* Checks the functions that libunwind 1.8 has added, against the older ones and the process's maps.
 * Usage: since_1_8 LIBUNWIND LIBUNWIND_X86_64 LIBUNWIND_PTRACE [1.6]
 *
 * The headers of version 1.6 have neither the functions nor the last callbacks. With "1.6" it is
 * also a client of that version, whose callbacks end where its memory ends. */
#include <dlfcn.h>
#include <libunwind-ptrace.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "itself.h"

#define SIZE_IN_1_6 64

typedef int name_function(unw_addr_space_t, unw_word_t, char *, size_t, unw_word_t *, void *);
typedef int cursor_name_function(unw_cursor_t *, char *, size_t, unw_word_t *);
typedef int range_function(unw_word_t, unw_word_t, unw_word_t, unw_word_t, unw_word_t, unw_word_t,
                           unw_addr_space_t, unw_word_t, unw_proc_info_t *, int, void *);
typedef void iterate_function(unw_addr_space_t, void *);
typedef int backtrace_function(void **, int, ucontext_t *, int);

static int checks;
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        checks++;                                                                                  \
        if (!(condition))                                                                          \
            printf("line %d: not %s\n", __LINE__, #condition);                                     \
    } while (0)

static void *libunwind, *remote, *ptrace_library;
static volatile int sink;

/* The path of the file mapped at an address, and the offset in it. */
static unw_word_t mapped(pid_t pid, unw_word_t ip, char *path) {
    char name[32], line[4096];
    snprintf(name, sizeof name, "/proc/%d/maps", pid);
    FILE *maps = fopen(name, "r");
    unw_word_t found = 0;
    path[0] = 0;
    while (fgets(line, sizeof line, maps)) {
        unsigned long start, end, offset;
        char file[4096] = "";
        sscanf(line, "%lx-%lx %*s %lx %*s %*s %4095s", &start, &end, &offset, file);
        if (start <= ip && ip < end) {
            strcpy(path, file);
            found = ip - start + offset;
        }
    }
    fclose(maps);
    return found;
}

static int get_elf_filename(unw_addr_space_t as, unw_word_t ip, char *buffer, size_t length,
                            unw_word_t *offset, void *argument) {
    *offset = ip & 0xfff;
    return snprintf(buffer, length, "file of %lx", (long)ip) < length ? 0 : -UNW_ENOMEM;
}

/* The callbacks of itself.h, and what version 1.8 has more. */
static struct {
    char in_1_6[SIZE_IN_1_6];
    name_function *get_elf_filename;
    void *others[2];
} later = {"", get_elf_filename, {NULL, NULL}};

/* libunwind 1.8 reads the first word of `.eh_frame_hdr` at its address, which need not be aligned. */
static int access_unaligned(unw_addr_space_t as, unw_word_t address, unw_word_t *value, int write,
                            void *argument) {
    if (address < 4096 || write)
        return -UNW_EINVAL;
    memcpy(value, (void *)address, sizeof *value);
    return 0;
}

static int is_1_6;

/* A client with itself as its target. */
static void check_remote(void) {
    LOAD(remote, unw_create_addr_space);
    LOAD(remote, unw_destroy_addr_space);
    LOAD(remote, unw_init_remote);
    LOAD(remote, unw_step);
    LOAD(remote, unw_get_reg);
    LOAD(remote, unw_get_proc_info_by_ip);
    cursor_name_function *file_of_frame = symbol(remote, "_Ux86_64_get_elf_filename");
    name_function *file = symbol(remote, "_Ux86_64_get_elf_filename_by_ip");
    name_function *function = symbol(remote, "_Ux86_64_get_proc_name_by_ip");
    range_function *in_range = symbol(remote, "_Ux86_64_get_proc_info_in_range");
    search = symbol(remote, "_Ux86_64_dwarf_search_unwind_table");

    unw_accessors_t in_1_6 = accessors;
    if (!is_1_6)
        in_1_6.access_mem = access_unaligned;
    memcpy(later.in_1_6, &in_1_6, SIZE_IN_1_6);
    unw_addr_space_t space = my_unw_create_addr_space((unw_accessors_t *)&later, 0);
    unw_cursor_t cursor;
    char name[64], expected[64];
    unw_word_t ip, offset;
    int frame = 0;
    my_unw_init_remote(&cursor, space, NULL);
    do {
        my_unw_get_reg(&cursor, UNW_REG_IP, &ip);
        /* A return address is looked up at its call. */
        unw_word_t pc = frame++ ? ip - 1 : ip;
        snprintf(expected, sizeof expected, "file of %lx", (long)pc);
        CHECK(file_of_frame(&cursor, name, sizeof name, &offset) == 0);
        CHECK(strcmp(name, expected) == 0 && offset == (pc & 0xfff) + (ip - pc));
        CHECK(file(space, pc, name, sizeof name, &offset, NULL) == 0);
        CHECK(strcmp(name, expected) == 0 && offset == (pc & 0xfff));
        CHECK(file(space, pc, name, 8, &offset, NULL) == -UNW_ENOMEM);
        CHECK(function(space, pc, name, sizeof name, &offset, NULL) == 0);
        CHECK(strcmp(name, expected + strlen("file of ")) == 0 && offset == (pc & 0xff));

        struct wanted wanted = {.ip = pc};
        dl_iterate_phdr(find_table, &wanted);
        unw_word_t start = wanted.table.start_ip, end = wanted.table.end_ip;
        unw_word_t hdr = wanted.table.u.rti.segbase;
        unw_proc_info_t info = {0}, by_ip;
        my_unw_get_proc_info_by_ip(space, pc, &by_ip, NULL);
        CHECK(in_range(start, end, hdr, 0, 0, 0, space, pc, &info, 1, NULL) == 0);
        CHECK(info.start_ip == by_ip.start_ip && info.end_ip == by_ip.end_ip);
        CHECK(info.handler == by_ip.handler && info.lsda == by_ip.lsda && info.unwind_info);
        CHECK(in_range(start, end, 0, 0, 0, 0, space, pc, &info, 1, NULL) == -UNW_ENOINFO);
        CHECK(in_range(start, end, (hdr & -8) - 4096 + 8, 0, 0, 0, space, pc, &info, 1, NULL) < 0);
    } while (my_unw_step(&cursor) > 0);
    CHECK(frame > 20);
    my_unw_destroy_addr_space(space);
}

/* Callbacks of version 1.6 just before memory that cannot be read. */
static void check_1_6(void) {
    LOAD(remote, unw_create_addr_space);
    LOAD(remote, unw_destroy_addr_space);
    LOAD(remote, unw_init_remote);
    LOAD(remote, unw_step);
    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(pages + 4096, 4096, PROT_NONE);
    unw_accessors_t *last = memcpy(pages + 4096 - SIZE_IN_1_6, &accessors, SIZE_IN_1_6);
    unw_addr_space_t space = my_unw_create_addr_space(last, 0);
    unw_cursor_t cursor;
    CHECK(space && my_unw_init_remote(&cursor, space, NULL) == 0);
    CHECK(my_unw_step(&cursor) == 1);
    my_unw_destroy_addr_space(space);
}

/* The own stack: from a signal's context, and from here. */
static void check_local(ucontext_t *original, int flags) {
    int (*init)(unw_cursor_t *, ucontext_t *, int) = symbol(libunwind, "_ULx86_64_init_local2");
    int (*step)(unw_cursor_t *) = symbol(libunwind, "_ULx86_64_step");
    int (*get_reg)(unw_cursor_t *, int, unw_word_t *) = symbol(libunwind, "_ULx86_64_get_reg");
    unw_addr_space_t space = *(unw_addr_space_t *)symbol(libunwind, "_ULx86_64_local_addr_space");
    cursor_name_function *function_of_frame = symbol(libunwind, "_ULx86_64_get_proc_name");
    cursor_name_function *file_of_frame = symbol(libunwind, "_ULx86_64_get_elf_filename");
    name_function *function = symbol(libunwind, "_ULx86_64_get_proc_name_by_ip");
    name_function *file = symbol(libunwind, "_ULx86_64_get_elf_filename_by_ip");
    iterate_function *set_iterate = symbol(libunwind, "_ULx86_64_set_iterate_phdr_function");
    backtrace_function *backtrace2 = symbol(libunwind, "unw_backtrace2");
    int (*backtrace)(void **, int) = symbol(libunwind, "unw_backtrace");
    set_iterate(space, dl_iterate_phdr);
    set_iterate(space, NULL);

    static ucontext_t here;
    here = *original;
    unw_cursor_t cursor;
    void *stepped[64], *addresses[64];
    int frames = 0, is_after_call = !flags;
    init(&cursor, &here, flags);
    do {
        unw_word_t ip, offset, by_ip_offset;
        char name[4096], by_ip[4096], expected[4096];
        get_reg(&cursor, UNW_REG_IP, &ip);
        stepped[frames++] = (void *)ip;
        unw_word_t pc = ip - is_after_call;
        is_after_call = 1;
        unw_word_t at = mapped(getpid(), pc, expected);
        CHECK(file_of_frame(&cursor, name, sizeof name, &offset) == 0);
        CHECK(strcmp(name, expected) == 0 && offset == at + (ip - pc));
        CHECK(file(space, pc, name, sizeof name, &offset, NULL) == 0);
        CHECK(strcmp(name, expected) == 0 && offset == at);
        CHECK(file(space, pc, name, 5, &offset, NULL) == -UNW_ENOMEM);
        CHECK(strncmp(name, expected, 4) == 0 && name[4] == 0);
        int result = function_of_frame(&cursor, name, sizeof name, &offset);
        CHECK(function(space, pc, by_ip, sizeof by_ip, &by_ip_offset, NULL) == result);
        CHECK(result || (strcmp(name, by_ip) == 0 && offset == by_ip_offset + (ip - pc)));
    } while (step(&cursor) > 0);
    CHECK(frames > 20);
    char name[64];
    unw_word_t offset;
    CHECK(file(space, 16, name, sizeof name, &offset, NULL) < 0);

    for (int size = 0; size < 64; size += 21) {
        here = *original;
        int expected = size < frames ? size : frames;
        CHECK(backtrace2(addresses, size, &here, flags) == expected);
        CHECK(memcmp(addresses, stepped, expected * sizeof *addresses) == 0);
    }
    CHECK(backtrace2(addresses, 64, &here, 6) == 0);
    void *again[2][64];
    int counts[2];
    /* The same call, so that the return addresses are the same but for the innermost. */
    for (int i = 0; i < 2; i++)
        counts[i] = i ? backtrace2(again[i], 64, NULL, 0) : backtrace(again[i], 64);
    /* Debian's library shows its own frame, too. */
    int more = counts[1] - counts[0];
    CHECK(more == 0 || more == 1);
    CHECK(memcmp(again[0] + 1, again[1] + 1 + more, (counts[0] - 1) * sizeof **again) == 0);
}

/* A traced child. */
static void check_ptrace(void) {
    LOAD(ptrace_library, _UPT_accessors);
    LOAD(ptrace_library, _UPT_create);
    LOAD(ptrace_library, _UPT_destroy);
    name_function *file = symbol(ptrace_library, "_UPT_get_elf_filename");
    pid_t pid = fork();
    if (pid == 0) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        raise(SIGSTOP);
        _exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    void *traced = my__UPT_create(pid);
    char name[4096], expected[4096];
    unw_word_t offset, ips[] = {(unw_word_t)check_ptrace, (unw_word_t)raise};
    for (int i = 0; i < 2; i++) {
        unw_word_t at = mapped(pid, ips[i], expected);
        CHECK(file(NULL, ips[i], name, sizeof name, &offset, traced) == 0);
        CHECK(strcmp(name, expected) == 0 && offset == at);
        CHECK(file(NULL, ips[i], name, 5, &offset, traced) == -UNW_ENOMEM);
    }
    CHECK(file(NULL, 16, name, sizeof name, &offset, traced) < 0);
    CHECK(((void **)my__UPT_accessors)[SIZE_IN_1_6 / sizeof(void *)] == file);
    my__UPT_destroy(traced);
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
}

static void handler(int signal, siginfo_t *info, void *interrupted) {
    check_local(interrupted, UNW_INIT_SIGNAL_FRAME);
    int (*capture)(ucontext_t *) = symbol(libunwind, "_Ux86_64_getcontext");
    capture(&context);
    check_local(&context, 0);
    context = *(ucontext_t *)interrupted;
    check_remote();
    if (is_1_6)
        check_1_6();
    sink = signal;
}

#define AT_THE_BOTTOM raise(SIGUSR1)
#include "descent.h"

int main(int argc, char **argv) {
    libunwind = load(argv[1], RTLD_GLOBAL);
    remote = load(argv[2], RTLD_GLOBAL);
    ptrace_library = load(argv[3], RTLD_GLOBAL);
    is_1_6 = argc > 4;
    check_ptrace();
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    sigaction(SIGUSR1, &action, NULL);
    int numbers[] = {2, 1};
    qsort(numbers, 2, sizeof *numbers, compare);
    printf("%s\n", checks > 500 ? "checked" : "too little");
    return 0;
}
