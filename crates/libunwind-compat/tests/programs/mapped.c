/* Walks the own stack, and prints the mappings of code without a file, with the mapping in front
 * of each. Usage: mapped LIBRARY */
#define UNW_LOCAL_ONLY
#include <libunwind.h>
#include <stdio.h>
#include <string.h>

#include "library.h"

int main(int argc, char **argv) {
    void *library = load(argv[1], RTLD_LOCAL);
    LOAD(library, unw_backtrace);
    void *addresses[8];
    my_unw_backtrace(addresses, 8);
    FILE *maps = fopen("/proc/self/maps", "r");
    char lines[2][512] = {""};
    for (int n = 0; fgets(lines[n], sizeof *lines, maps); n = !n)
        if (strstr(lines[n], "x") && !strpbrk(lines[n], "/["))
            printf("%s%s", lines[!n], lines[n]);
    return 0;
}
