// Preloaded into a program, replaces the event CPU cycles by the CPU clock: for profilers without another
// event, on machines that do not count cycles.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/perf_event.h>
#include <stdarg.h>
#include <sys/syscall.h>

long syscall(long number, ...) {
    static long (*original)(long, ...);
    if (!original)
        *(void **)&original = dlsym(RTLD_NEXT, "syscall");
    va_list list;
    va_start(list, number);
    long a[6];
    for (int i = 0; i < 6; ++i)
        a[i] = va_arg(list, long);
    va_end(list);
    if (number == SYS_perf_event_open) {
        struct perf_event_attr *attr = (struct perf_event_attr *)a[0];
        if (attr->type == PERF_TYPE_HARDWARE && attr->config == PERF_COUNT_HW_CPU_CYCLES) {
            attr->type = PERF_TYPE_SOFTWARE;
            attr->config = PERF_COUNT_SW_CPU_CLOCK;
        }
    }
    return original(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
