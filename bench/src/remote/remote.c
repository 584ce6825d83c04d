/* Unwinds perf's samples through libunwind's interface, as perf does, by native objects, and by the papers' form of
 * tables where modules have one: remote SAMPLES ROUNDS LIBUNWIND UNSPOOL MOST SUMS. remote.rs describes the format of SAMPLES. Walks have at most
 * MOST steps. The unwinders alternate in each round: each walks 16 samples, and then the same again. Prints
 * samples and frames, the number of stacks equal to the first unwinder's, steps not covered by the objects, and
 * nanoseconds per frame: of the first round, the median of the others, the same without the start of walks,
 * and the median of the repeated walks. */
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <libunwind.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include "unspool_native.h"

enum { MODULES = 256, SEGMENTS = 1024, ROUNDS = 99, DEEPEST = 1024, NAME = 256, IN_A_ROW = 16 };

struct recorded_module {
    uint64_t start, end, bias;
    char path[NAME], object[NAME], eh_elf[NAME];
};

struct sample {
    /* The start of the copied stack; a size of 0 means the previous sample's stack. */
    uint64_t registers[UNSPOOL_REGISTERS], start, size;
    unsigned char stack[];
};

typedef int native_step(struct unspool_frame *, uint64_t, uint64_t, const struct unspool_memory *);

/* The papers' form: four registers, passed and returned by value. A flag for each that the row has. */
enum { HAS_RIP = 1, HAS_RSP = 2, HAS_RBP = 4, HAS_RBX = 8, FAILED = 128 };
struct four_registers {
    uint8_t flags;
    uintptr_t rip, rsp, rbp, rbx;
};
typedef struct four_registers eh_elf_step(struct four_registers, uintptr_t, uintptr_t (*)(uintptr_t));

static struct module {
    uint64_t start, end, bias, hdr;
    unsigned table_len;
    native_step *step;
    eh_elf_step *eh_elf;
} modules[MODULES];

static struct segment {
    uint64_t start, end;
    const unsigned char *bytes;
} segments[SEGMENTS];

static uint64_t module_count, segment_count, sample_count;
static const struct sample **samples, *current;
/* The sample that has the stack of the current one. */
static const struct sample *copied;
static uint64_t *expected, left_over;
static int rounds, has_eh_elf;

static void fail(const char *what)
{
    fprintf(stderr, "remote: %s\n", what);
    exit(2);
}

static const void *map(const char *path)
{
    struct stat state;
    int file = open(path, O_RDONLY);
    if (file < 0 || fstat(file, &state))
        fail(path);
    const void *bytes = mmap(NULL, state.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    return bytes == MAP_FAILED ? NULL : bytes;
}

static const unsigned char *at(uint64_t address)
{
    static struct segment *last = segments;
    uint64_t distance = address - copied->start;
    if (distance < copied->size && copied->size - distance >= 8)
        return copied->stack + distance;
    if (address >= last->start && address < last->end)
        return last->bytes + (address - last->start);
    for (uint64_t n = 0; n < segment_count; n++)
        if (address >= segments[n].start && address < segments[n].end) {
            last = &segments[n];
            return last->bytes + (address - last->start);
        }
    return NULL;
}

static struct module *module_at(uint64_t address)
{
    uint64_t low = 0, high = module_count;
    while (low < high) {
        uint64_t middle = (low + high) / 2;
        if (modules[middle].end <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low < module_count && modules[low].start <= address ? &modules[low] : NULL;
}

static void add(const struct recorded_module *recorded)
{
    const unsigned char *file = map(recorded->path);
    const Elf64_Ehdr *header = (const void *)file;
    struct module *module = &modules[module_count++];
    *module = (struct module){.start = recorded->start, .end = recorded->end, .bias = recorded->bias};
    for (int n = 0; n < header->e_phnum; n++) {
        const Elf64_Phdr *phdr = (const Elf64_Phdr *)(file + header->e_phoff) + n;
        uint64_t start = recorded->bias + phdr->p_vaddr;
        if (phdr->p_type == PT_LOAD)
            segments[segment_count++] =
                (struct segment){start, start + phdr->p_filesz - 7, file + phdr->p_offset};
        if (phdr->p_type == PT_GNU_EH_FRAME) {
            module->hdr = start;
            module->table_len = *(const uint32_t *)(file + phdr->p_offset + 8);
        }
    }
    if (recorded->object[0]) {
        void *object = dlopen(recorded->object, RTLD_NOW | RTLD_LOCAL);
        if (!object)
            fail(dlerror());
        module->step = (native_step *)dlsym(object, "unspool_step");
    }
    if (recorded->eh_elf[0]) {
        void *object = dlopen(recorded->eh_elf, RTLD_NOW | RTLD_LOCAL);
        if (!object)
            fail(dlerror());
        module->eh_elf = (eh_elf_step *)dlsym(object, "eh_elf_step");
        has_eh_elf = 1;
    }
}

/* libunwind's interface. */

typedef int search_table(unw_addr_space_t, unw_word_t, unw_dyn_info_t *, unw_proc_info_t *, int, void *);

static struct library {
    unw_addr_space_t space[2];
    __typeof__(&unw_init_remote) init;
    __typeof__(&unw_step) step;
    __typeof__(&unw_get_reg) get;
    search_table *search;
} libraries[3], *using;

static int find_proc_info(unw_addr_space_t as, unw_word_t ip, unw_proc_info_t *pi, int need, void *argument)
{
    const struct module *module = module_at(ip);
    if (!module || !module->hdr)
        return -UNW_ENOINFO;
    unw_dyn_info_t table = {.start_ip = module->start, .end_ip = module->end, .format = UNW_INFO_FORMAT_REMOTE_TABLE};
    table.u.rti.segbase = module->hdr;
    table.u.rti.table_data = module->hdr + 12;
    table.u.rti.table_len = module->table_len;
    return using->search(as, ip, &table, pi, need, argument);
}

static void put_unwind_info(unw_addr_space_t as, unw_proc_info_t *pi, void *argument)
{
    (void)as, (void)pi, (void)argument;
}

static int get_dyn_info_list_addr(unw_addr_space_t as, unw_word_t *address, void *argument)
{
    (void)as, (void)address, (void)argument;
    return -UNW_ENOINFO;
}

static int access_mem(unw_addr_space_t as, unw_word_t address, unw_word_t *value, int write, void *argument)
{
    (void)as, (void)argument;
    const unsigned char *bytes = write ? NULL : at(address);
    if (!bytes)
        return -UNW_EINVAL;
    memcpy(value, bytes, 8);
    return 0;
}

static int access_reg(unw_addr_space_t as, unw_regnum_t number, unw_word_t *value, int write, void *argument)
{
    (void)as, (void)argument;
    if (number < 0 || number >= UNSPOOL_REGISTERS || write)
        return -UNW_EBADREG;
    *value = current->registers[number];
    return 0;
}

static int access_fpreg(unw_addr_space_t as, unw_regnum_t number, unw_fpreg_t *value, int write, void *argument)
{
    (void)as, (void)number, (void)value, (void)write, (void)argument;
    return -UNW_EINVAL;
}

static int resume(unw_addr_space_t as, unw_cursor_t *cursor, void *argument)
{
    (void)as, (void)cursor, (void)argument;
    return -UNW_EINVAL;
}

static int get_proc_name(unw_addr_space_t as, unw_word_t ip, char *name, size_t size, unw_word_t *offset, void *argument)
{
    (void)as, (void)ip, (void)name, (void)size, (void)offset, (void)argument;
    return -UNW_EINVAL;
}

static void *named(void *library, const char *name)
{
    void *found = dlsym(library, name);
    if (!found)
        fail(dlerror());
    return found;
}

static void load(struct library *library, const char *path)
{
    static unw_accessors_t accessors = {find_proc_info, put_unwind_info, get_dyn_info_list_addr, access_mem,
                                        access_reg, access_fpreg, resume, get_proc_name};
    void *handle = dlmopen(LM_ID_NEWLM, path, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        fail(dlerror());
    __typeof__(&unw_create_addr_space) create = named(handle, "_Ux86_64_create_addr_space");
    __typeof__(&unw_set_caching_policy) keep = named(handle, "_Ux86_64_set_caching_policy");
    library->init = named(handle, "_Ux86_64_init_remote");
    library->step = named(handle, "_Ux86_64_step");
    library->get = named(handle, "_Ux86_64_get_reg");
    library->search = named(handle, "_Ux86_64_dwarf_search_unwind_table");
    for (int n = 0; n < 2; n++) {
        library->space[n] = create(&accessors, 0);
        keep(library->space[n], n ? UNW_CACHE_GLOBAL : UNW_CACHE_NONE);
    }
}

/* The unwinders: write the frames after the innermost one, at most MOST, to `frames`. */

static int by_libunwind(struct library *library, int cached, uint64_t *frames, int most)
{
    unw_cursor_t cursor;
    int count = 0;
    using = library;
    if (library->init(&cursor, library->space[cached], NULL))
        return 0;
    while (count < most && library->step(&cursor) > 0) {
        library->get(&cursor, UNW_REG_IP, &frames[count]);
        if (!frames[count])
            break;
        count++;
    }
    return count;
}

static int theirs_uncached(uint64_t *frames, int most) { return by_libunwind(&libraries[0], 0, frames, most); }
static int theirs_cached(uint64_t *frames, int most) { return by_libunwind(&libraries[0], 1, frames, most); }
static int ours_uncached(uint64_t *frames, int most) { return by_libunwind(&libraries[1], 0, frames, most); }
static int ours_cached(uint64_t *frames, int most) { return by_libunwind(&libraries[1], 1, frames, most); }
static int native_uncached(uint64_t *frames, int most) { return by_libunwind(&libraries[2], 0, frames, most); }
static int native_cached(uint64_t *frames, int most) { return by_libunwind(&libraries[2], 1, frames, most); }

static int read_copy(void *argument, uint64_t address, uint64_t size, uint64_t *value)
{
    (void)argument;
    const unsigned char *bytes = at(address);
    if (!bytes)
        return 1;
    *value = 0;
    memcpy(value, bytes, size);
    return 0;
}

/* If the copied stack is read directly, registers that point to the stack are moved to point to the copy. */
static int by_objects(int is_direct, uint64_t *frames, int most)
{
    const uint64_t size = is_direct ? copied->size : 0, distance = (uintptr_t)copied->stack - copied->start;
    const struct unspool_memory memory = {(uintptr_t)copied->stack, (uintptr_t)copied->stack + size, read_copy, NULL};
    struct unspool_frame frame = {.known = 0x1ffff};
    int count = 0, before = 0;
    memcpy(frame.registers, current->registers, sizeof frame.registers);
    while (count < most) {
        for (int n = 0; is_direct && n < UNSPOOL_REGISTERS - 1; n++)
            frame.registers[n] += frame.registers[n] - copied->start < size ? distance : 0;
        uint64_t address = frame.registers[16] - before;
        const struct module *module = module_at(address);
        int status = module && module->step ? module->step(&frame, address - module->bias, module->bias, &memory)
                                            : UNSPOOL_NO_ROW;
        left_over += status < 0;
        if ((status != UNSPOOL_CALLER && status != UNSPOOL_INTERRUPTED) || !frame.registers[16])
            break;
        before = status == UNSPOOL_CALLER;
        frames[count++] = frame.registers[16];
    }
    return count;
}

static int by_callback(uint64_t *frames, int most) { return by_objects(0, frames, most); }
static int directly(uint64_t *frames, int most) { return by_objects(1, frames, most); }

static int is_unreadable;

static uintptr_t word(uintptr_t address)
{
    const unsigned char *bytes = at(address);
    uintptr_t value = 0;
    if (bytes)
        memcpy(&value, bytes, 8);
    else
        is_unreadable = 1;
    return value;
}

/* A register without a rule stays as it is. */
static int by_eh_elf(uint64_t *frames, int most)
{
    const uint64_t *registers = current->registers;
    struct four_registers frame = {.rip = registers[16], .rsp = registers[7], .rbp = registers[6], .rbx = registers[3]};
    int count = 0;
    while (count < most) {
        uint64_t address = frame.rip - (count > 0);
        const struct module *module = module_at(address);
        struct four_registers caller = {.flags = FAILED};
        is_unreadable = 0;
        if (module && module->eh_elf)
            caller = module->eh_elf(frame, address - module->bias, word);
        left_over += caller.flags & FAILED && 1;
        if (caller.flags & FAILED || is_unreadable || !(caller.flags & HAS_RIP) || !caller.rip)
            break;
        frame.rip = caller.rip;
        frame.rsp = caller.rsp;
        frame.rbp = caller.flags & HAS_RBP ? caller.rbp : frame.rbp;
        frame.rbx = caller.flags & HAS_RBX ? caller.rbx : frame.rbx;
        frames[count++] = frame.rip;
    }
    return count;
}

static const struct way {
    const char *name;
    int (*walk)(uint64_t *, int);
} ways[] = {
    {"libunwind, no cache", theirs_uncached}, {"libunwind, global cache", theirs_cached},
    {"unspool, no cache", ours_uncached},     {"unspool, global cache", ours_cached},
    {"unspool, native, no", native_uncached}, {"unspool, native, global", native_cached},
    {"objects, by callback", by_callback},    {"objects, directly", directly},
    {"eh_elf", by_eh_elf},
};
enum { WAYS = sizeof ways / sizeof *ways };

static uint64_t sum(const uint64_t *frames, int count)
{
    uint64_t sum = UINT64_C(0xcbf29ce484222325);
    for (int n = 0; n < count; n++)
        sum = (sum ^ frames[n]) * UINT64_C(0x100000001b3);
    return sum;
}

static int ascending(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

/* This thread's CPU time: others may run, too. */
static double now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

struct passed {
    uint64_t frames, same;
    double whole, again;
};

/* Walks samples; returns the number of frames. */
static uint64_t walk(const struct way *way, int most, uint64_t start, uint64_t end, uint64_t *same)
{
    static uint64_t found[DEEPEST];
    uint64_t frames = 0;
    for (uint64_t n = start; n < end; n++) {
        current = samples[n];
        if (current->size)
            copied = current;
        int count = way->walk(found, most);
        uint64_t of_stack = sum(found, count);
        if (way == ways && most)
            expected[n] = of_stack;
        *same += of_stack == expected[n];
        frames += count;
    }
    return frames;
}

/* Walks all samples. */
static struct passed pass(const struct way *way, int most)
{
    struct passed passed = {0};
    uint64_t same = 0;
    for (uint64_t n = 0; n < sample_count; n += IN_A_ROW) {
        uint64_t end = n + IN_A_ROW < sample_count ? n + IN_A_ROW : sample_count;
        double start = now();
        passed.frames += walk(way, most, n, end, &passed.same);
        double middle = now();
        walk(way, most, n, end, &same);
        passed.whole += middle - start;
        passed.again += now() - middle;
    }
    return passed;
}

static double median(double *times)
{
    qsort(times, rounds - 1, sizeof(double), ascending);
    return times[(rounds - 1) / 2];
}

int main(int argc, char **argv)
{
    static double whole[WAYS][ROUNDS], steps[WAYS][ROUNDS], again[WAYS][ROUNDS];
    struct passed passed[WAYS];
    uint64_t lost[WAYS] = {0};
    int most = argc > 6 ? atoi(argv[5]) : 0;
    rounds = argc > 6 ? atoi(argv[2]) : 0;
    if (rounds < 2 || rounds > ROUNDS || most < 1 || most > DEEPEST)
        fail("usage: remote SAMPLES ROUNDS LIBUNWIND UNSPOOL MOST SUMS");
    const uint64_t *numbers = map(argv[1]);
    uint64_t count = *numbers++;
    const struct recorded_module *recorded = (const void *)numbers;
    if (count > MODULES)
        fail("too many modules");
    for (uint64_t n = 0; n < count; n++)
        add(&recorded[n]);
    numbers = (const void *)(recorded + count);
    sample_count = *numbers++;
    samples = calloc(sample_count, sizeof *samples);
    expected = calloc(sample_count, sizeof *expected);
    for (uint64_t n = 0; n < sample_count; n++) {
        samples[n] = (const void *)numbers;
        numbers += UNSPOOL_REGISTERS + 2 + samples[n]->size / 8;
    }
    load(&libraries[0], argv[3]);
    load(&libraries[1], argv[4]);
    /* Again, now by the objects. */
    setenv("UNSPOOL_TABLES", "native", 1);
    load(&libraries[2], argv[4]);
    const int count_of_ways = has_eh_elf ? WAYS : WAYS - 1;
    for (int round = 0; round < rounds; round++)
        for (int way = 0; way < count_of_ways; way++) {
            left_over = 0;
            passed[way] = pass(&ways[way], most);
            lost[way] = left_over / 2;
            whole[way][round] = passed[way].whole / (double)passed[way].frames;
            again[way][round] = passed[way].again / (double)passed[way].frames;
            steps[way][round] = whole[way][round] - pass(&ways[way], 0).whole / (double)passed[way].frames;
        }
    for (int way = 0; way < count_of_ways; way++)
        printf("%s\t%lu\t%lu\t%lu\t%lu\t%.1f\t%.1f\t%.1f\t%.1f\n", ways[way].name, sample_count, passed[way].frames,
               passed[way].same, lost[way], whole[way][0], median(whole[way] + 1), median(steps[way] + 1),
               median(again[way] + 1));
    FILE *sums = fopen(argv[6], "wb");
    if (!sums || fwrite(expected, sizeof *expected, sample_count, sums) != sample_count || fclose(sums))
        fail(argv[6]);
    return 0;
}
