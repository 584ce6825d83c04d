/* Unwinds through registered generated code, by tables of several forms. Usage: registered With
 * UNW_LOCAL_ONLY, libunwind.so.8 walks, otherwise libunwind-x86_64.so.8. */
#include <libunwind.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

/* Calls its argument. It has no frame pointer: only the table can unwind it. */
static const uint8_t code[] = {
    0x53,                   /* push %rbx */
    0x48, 0x83, 0xec, 0x20, /* sub $32, %rsp */
    0xff, 0xd7,             /* call *%rdi */
    0x48, 0x83, 0xc4, 0x20, /* add $32, %rsp */
    0x5b,                   /* pop %rbx */
    0xc3,                   /* ret */
};

struct __attribute__((packed)) cie {
    uint32_t length, id;
    uint8_t header[10], personality_encoding;
    uint64_t personality;
    uint8_t encodings[2], body[15];
};

static struct region {
    struct {
        int32_t code, entry;
    } search;
    struct __attribute__((packed)) {
        uint32_t length, back;
        uint64_t start, size;
        uint8_t augmentation_length;
        uint64_t lsda;
        uint8_t body[15];
    } fde;
    uint8_t code[64];
    /* Behind its entry, and too far away to count as one section. */
    uint8_t between[64 << 20];
    struct cie cie;
} *region;

/* For a table: pointers are relative to the global pointer; the code has been moved since. */
enum { RELATIVE = 1, MOVED = 2, FORMS = 4 };

static const uint64_t PERSONALITY = 0x1111000, LSDA = 0x2222000;

static void describe(unw_dyn_info_t *info, int form) {
    uint64_t gp = form & RELATIVE ? 0x100000 : 0, moved = form & MOVED ? 0x3000 : 0;
    uint8_t encoding = form & RELATIVE ? 0x30 : 0;
    region->cie = (struct cie){
        sizeof region->cie - 4, 0,
        /* version, augmentation and its length, alignments 1 and -8, return address column */
        {1, 'z', 'P', 'L', 'R', 0, 1, 0x78, 16, 11}, encoding, PERSONALITY - gp,
        /* CFA rsp + 8, return address in the slot below it */
        {encoding, encoding}, {0x0c, 7, 8, 0x90, 1}};
    region->fde.length = sizeof region->fde - 4;
    region->fde.back = (uint8_t *)&region->fde.back - (uint8_t *)&region->cie;
    region->fde.start = (uint64_t)region->code - moved - gp;
    region->fde.size = sizeof code;
    region->fde.augmentation_length = 8;
    region->fde.lsda = LSDA - gp;
    /* behind push: CFA + 16, rbx saved; behind sub: CFA + 48 */
    memcpy(region->fde.body, (uint8_t[]){0x41, 0x0e, 16, 0x83, 2, 0x44, 0x0e, 48}, 8);
    region->search.code = region->code - (uint8_t *)region - moved;
    region->search.entry = (uint8_t *)&region->fde - (uint8_t *)region;
    *info = (unw_dyn_info_t){
        .start_ip = (unw_word_t)region->code,
        .end_ip = (unw_word_t)region->code + sizeof code,
        .gp = gp,
        .load_offset = moved,
        .format = UNW_INFO_FORMAT_REMOTE_TABLE,
        .u.rti = {.name_ptr = (unw_word_t)"made",
                  .segbase = (unw_word_t)region,
                  .table_len = 1,
                  .table_data = (unw_word_t)&region->search},
    };
}

static volatile int sink;

static void walk(void) {
    unw_context_t context;
    unw_cursor_t cursor;
    void *addresses[64];
    unw_getcontext(&context);
    unw_init_local(&cursor, &context);
    int found = unw_backtrace(addresses, 64), steps = 0;
    do {
        char name[64] = "";
        unw_word_t ip = 0, rbx = 0, offset = 0;
        unw_proc_info_t info;
        unw_get_reg(&cursor, UNW_REG_IP, &ip);
        unw_get_reg(&cursor, UNW_X86_64_RBX, &rbx);
        int named = unw_get_proc_name(&cursor, name, sizeof name, &offset);
        int is_known = unw_get_proc_info(&cursor, &info);
        int is_same = steps > 0 && steps < found && (unw_word_t)addresses[steps] == ip;
        printf("%d:%s+%lx", named, name, (long)offset);
        if (ip - (unw_word_t)region < sizeof *region)
            printf(" rbx=%lx %d start=%ld size=%ld personality=%lx lsda=%lx gp=%lx", (long)rbx, is_known,
                   (long)(info.start_ip - (unw_word_t)region->code), (long)(info.end_ip - info.start_ip),
                   (long)info.handler, (long)info.lsda, (long)info.gp);
        printf(" %d\n", is_same);
        steps++;
    } while (unw_step(&cursor) > 0);
    printf("%d frames, %d found\n", steps, found);
}

static __attribute__((noinline)) int call(void (*made)(void (*)(void))) {
    register long kept asm("rbx") = 0x1234;
    asm volatile("" : "+r"(kept));
    made(walk);
    asm volatile("" : "+r"(kept));
    return kept == 0x1234;
}

int main(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    region = mmap(NULL, sizeof *region, PROT_READ | PROT_WRITE | PROT_EXEC,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (region == MAP_FAILED)
        return 2;
    memcpy(region->code, code, sizeof code);
    for (int form = 0; form < FORMS; form++) {
        unw_dyn_info_t info;
        describe(&info, form);
        /* Others are registered before and after it. */
        unw_dyn_info_t others[2] = {{.start_ip = 1, .end_ip = 2}, {.start_ip = 3, .end_ip = 4}};
        _U_dyn_register(&others[0]);
        _U_dyn_register(&info);
        _U_dyn_register(&others[1]);
        sink = call((void (*)(void (*)(void)))(uintptr_t)region->code);
        _U_dyn_cancel(&info);
        _U_dyn_cancel(&others[1]);
        _U_dyn_cancel(&others[0]);
        unw_flush_cache(unw_local_addr_space, 0, 0);
    }
    return 0;
}
