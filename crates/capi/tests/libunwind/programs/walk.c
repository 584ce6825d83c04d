/* Walks one stack with each of some libraries, as a remote client whose target is the program
 * itself, and prints what they say. Usage: walk ROUNDS LIBRARY...
 *
 * There is a signal frame on the stack. With rounds there is none, and the stack is walked so
 * often more, printing nothing, for instructions to be counted. */
#include <dlfcn.h>
#include <libunwind.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "library.h"

extern int unw_search(unw_addr_space_t, unw_word_t, unw_dyn_info_t *, unw_proc_info_t *, int,
                      void *);
static __typeof__(&unw_search) search;

static ucontext_t context;
static volatile int sink;

struct wanted {
    unw_word_t ip;
    unw_dyn_info_t table;
};

static int find_table(struct dl_phdr_info *info, size_t size, void *argument) {
    struct wanted *wanted = argument;
    const ElfW(Phdr) *hdr = NULL;
    int is_here = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *phdr = &info->dlpi_phdr[i];
        unw_word_t start = info->dlpi_addr + phdr->p_vaddr;
        if (phdr->p_type == PT_GNU_EH_FRAME)
            hdr = phdr;
        if (phdr->p_type == PT_LOAD && start <= wanted->ip && wanted->ip < start + phdr->p_memsz) {
            is_here = 1;
            wanted->table.start_ip = start;
            wanted->table.end_ip = start + phdr->p_memsz;
        }
    }
    if (!is_here || !hdr)
        return 0;
    /* Version 1, pcrel sdata4, udata4, datarel sdata4: what every linker writes. */
    const unsigned char *bytes = (const void *)(info->dlpi_addr + hdr->p_vaddr);
    if (memcmp(bytes, "\x01\x1b\x03\x3b", 4) != 0)
        abort();
    wanted->table.format = UNW_INFO_FORMAT_REMOTE_TABLE;
    wanted->table.u.rti.segbase = (unw_word_t)bytes;
    wanted->table.u.rti.table_len = ((const unsigned *)bytes)[2];
    wanted->table.u.rti.table_data = (unw_word_t)bytes + 12;
    return 1;
}

static int find_proc_info(unw_addr_space_t as, unw_word_t ip, unw_proc_info_t *pi, int need,
                          void *argument) {
    struct wanted wanted = {.ip = ip};
    if (!dl_iterate_phdr(find_table, &wanted))
        return -UNW_ENOINFO;
    return search(as, ip, &wanted.table, pi, need, argument);
}

static void put_unwind_info(unw_addr_space_t as, unw_proc_info_t *pi, void *argument) {}

static int get_dyn_info_list_addr(unw_addr_space_t as, unw_word_t *address, void *argument) {
    return -UNW_ENOINFO;
}

static int access_mem(unw_addr_space_t as, unw_word_t address, unw_word_t *value, int write,
                      void *argument) {
    if (address < 4096 || address % 8 != 0)
        return -UNW_EINVAL;
    if (write)
        *(unw_word_t *)address = *value;
    else
        *value = *(unw_word_t *)address;
    return 0;
}

static const int greg[] = {REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI,
                           REG_RBP, REG_RSP, REG_R8,  REG_R9,  REG_R10, REG_R11,
                           REG_R12, REG_R13, REG_R14, REG_R15, REG_RIP};

static int access_reg(unw_addr_space_t as, unw_regnum_t number, unw_word_t *value, int write,
                      void *argument) {
    if (number < 0 || number > UNW_REG_LAST || write)
        return -UNW_EBADREG;
    *value = context.uc_mcontext.gregs[greg[number]];
    return 0;
}

static int access_fpreg(unw_addr_space_t as, unw_regnum_t number, unw_fpreg_t *value, int write,
                        void *argument) {
    return -UNW_EBADREG;
}

static int resume(unw_addr_space_t as, unw_cursor_t *cursor, void *argument) {
    return -UNW_EINVAL;
}

static int get_proc_name(unw_addr_space_t as, unw_word_t ip, char *buffer, size_t length,
                         unw_word_t *offset, void *argument) {
    if (offset)
        *offset = ip & 0xff;
    snprintf(buffer, length, "%lx", (long)ip);
    return 0;
}

static void walk(const char *path, int rounds, int is_alone) {
    void *library = is_alone ? load(path, RTLD_LOCAL)
                             : checked(dlmopen(LM_ID_NEWLM, path, RTLD_NOW | RTLD_LOCAL));
    LOAD(library, unw_create_addr_space);
    LOAD(library, unw_destroy_addr_space);
    LOAD(library, unw_set_caching_policy);
    LOAD(library, unw_init_remote);
    LOAD(library, unw_step);
    LOAD(library, unw_get_reg);
    LOAD(library, unw_get_save_loc);
    LOAD(library, unw_get_proc_info);
    LOAD(library, unw_get_proc_name);
    LOAD(library, unw_is_signal_frame);
    LOAD(library, unw_regname);
    LOAD(library, unw_strerror);
    search = symbol(library, "_Ux86_64_dwarf_search_unwind_table");

    static unw_accessors_t accessors = {
        find_proc_info, put_unwind_info, get_dyn_info_list_addr, access_mem,
        access_reg,     access_fpreg,    resume,                 get_proc_name,
    };
    unw_addr_space_t space = my_unw_create_addr_space(&accessors, 0);
    unw_cursor_t cursor;
    printf("== library\n");
    for (int cached = 0; cached < 2; cached++) {
        if (cached)
            my_unw_set_caching_policy(space, UNW_CACHE_GLOBAL);
        /* The second round finds everything in the cache. */
        for (int round = 0; round < 1 + cached; round++) {
            int step = my_unw_init_remote(&cursor, space, NULL);
            for (int frame = 0; step >= 0; frame++) {
                int is_interrupted = my_unw_is_signal_frame(&cursor);
                printf("frame %d interrupted=%d", frame, is_interrupted);
                for (int reg = 0; reg <= UNW_X86_64_CFA; reg++) {
                    int is_preserved = reg == UNW_X86_64_RBX || reg == UNW_X86_64_RBP ||
                                       reg == UNW_X86_64_RSP || reg >= UNW_X86_64_R12;
                    unw_word_t value = 0;
                    if (frame > 0 && !is_interrupted && !is_preserved)
                        continue;
                    int result = my_unw_get_reg(&cursor, reg, &value);
                    printf(" %d:%d=%lx", reg, result, (long)value);
                    unw_save_loc_t location;
                    if (reg != UNW_X86_64_RSP && is_preserved) {
                        my_unw_get_save_loc(&cursor, reg, &location);
                        printf("@%d.%lx", location.type, (long)location.u.addr);
                    }
                }
                unw_proc_info_t info;
                int result = my_unw_get_proc_info(&cursor, &info);
                printf(" info=%d:%lx..%lx,%lx,%lx", result, (long)info.start_ip,
                       (long)info.end_ip, (long)info.handler, (long)info.lsda);
                char name[32];
                unw_word_t offset = 0;
                result = my_unw_get_proc_name(&cursor, name, sizeof name, &offset);
                printf(" name=%d:%s+%lx\n", result, name, (long)offset);
                step = my_unw_step(&cursor);
                if (step == 0)
                    break;
            }
            printf("end %d %s\n", step, my_unw_strerror(step));
        }
    }
    for (int reg = 0; reg <= UNW_REG_LAST + 1; reg++)
        printf("%s\n", my_unw_regname(reg));
    for (int error = -11; error <= 0; error++)
        printf("%s\n", my_unw_strerror(error));
    unw_word_t value = 1;
    printf("bad %d %d\n", my_unw_get_reg(&cursor, 99, &value), my_unw_get_reg(&cursor, 18, &value));

    int steps = 0;
    for (int round = 0; round < rounds; round++) {
        my_unw_init_remote(&cursor, space, NULL);
        while (my_unw_step(&cursor) > 0)
            steps++;
    }
    printf("steps %d\n", steps);
    my_unw_destroy_addr_space(space);
}

static char **libraries;
static int rounds;

static __attribute__((noinline)) void walk_all(void) {
    getcontext(&context);
    for (int i = 0; libraries[i]; i++)
        walk(libraries[i], rounds, !libraries[1]);
}

static void handler(int signal) {
    walk_all();
    sink = signal;
}

#define AT_THE_BOTTOM (rounds ? walk_all() : (void)raise(SIGUSR1))
#include "descent.h"

int main(int argc, char **argv) {
    rounds = atoi(argv[1]);
    libraries = argv + 2;
    signal(SIGUSR1, handler);
    int numbers[] = {3, 1, 2};
    qsort(numbers, 3, sizeof *numbers, compare);
    return 0;
}
