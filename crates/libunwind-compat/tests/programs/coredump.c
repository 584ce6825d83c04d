/* Prints the frames of all threads of a core file, as eu-stack does, and where they are in files.
 * Usage: coredump LIBUNWIND_X86_64 LIBUNWIND_COREDUMP CORE */
#include <dlfcn.h>
#include <libunwind-coredump.h>
#include <stdio.h>
#include <stdlib.h>

#include "library.h"

int main(int argc, char **argv) {
    void *library = load(argv[1], RTLD_GLOBAL);
    void *core_library = load(argv[2], RTLD_GLOBAL);
    LOAD(library, unw_create_addr_space);
    LOAD(library, unw_init_remote);
    LOAD(library, unw_step);
    LOAD(library, unw_get_reg);
    LOAD(library, unw_get_proc_name);
    LOAD(core_library, _UCD_accessors);
    LOAD(core_library, _UCD_create);
    LOAD(core_library, _UCD_destroy);
    LOAD(core_library, _UCD_get_num_threads);
    LOAD(core_library, _UCD_select_thread);
    LOAD(core_library, _UCD_get_pid);
    LOAD(core_library, _UCD_get_cursig);

    /* libunwind 1.6 has no declaration. */
    int (*get_elf_filename)(unw_cursor_t *, char *, size_t, unw_word_t *) =
        symbol(library, "_Ux86_64_get_elf_filename");

    if (my__UCD_create(argv[0]) || my__UCD_create("/nonexistent"))
        return 2;
    struct UCD_info *core = my__UCD_create(argv[3]);
    if (!core)
        return 2;
    unw_addr_space_t space = my_unw_create_addr_space(my__UCD_accessors, 0);
    for (int thread = 0; thread < my__UCD_get_num_threads(core); thread++) {
        my__UCD_select_thread(core, thread);
        my__UCD_select_thread(core, -1);
        printf("TID %d:\n", my__UCD_get_pid(core));
        unw_cursor_t cursor;
        int step = my_unw_init_remote(&cursor, space, core);
        for (int frame = 0; step >= 0; frame++) {
            unw_word_t ip, offset = 0, file_offset;
            char name[64] = "", file[4096];
            my_unw_get_reg(&cursor, UNW_REG_IP, &ip);
            my_unw_get_proc_name(&cursor, name, sizeof name, &offset);
            printf("#%d 0x%016lx %s\n", frame, (long)ip, name);
            if (get_elf_filename(&cursor, file, sizeof file, &file_offset) == 0)
                printf("%s+%lx is %s+%lx\n", name, (long)offset, file, (long)file_offset);
            step = my_unw_step(&cursor);
            if (step == 0)
                break;
        }
        if (step < 0)
            printf("error %d\n", step);
        fprintf(stderr, "signal %d\n", my__UCD_get_cursig(core));
    }
    my__UCD_destroy(core);
    return 0;
}
