/* A remote client with the program itself as its target, in the registers of a context. Set
   `search`. */
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "library.h"

extern int unw_search(unw_addr_space_t, unw_word_t, unw_dyn_info_t *, unw_proc_info_t *, int,
                      void *);
static __typeof__(&unw_search) search;

static ucontext_t context;
/* The number of memory reads. */
static unsigned long reads;

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
    /* Version 1, pcrel sdata4, udata4, datarel sdata4: every linker writes this. */
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
    reads++;
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

static unw_accessors_t accessors = {
    find_proc_info, put_unwind_info, get_dyn_info_list_addr, access_mem,
    access_reg,     access_fpreg,    resume,                 get_proc_name,
};
