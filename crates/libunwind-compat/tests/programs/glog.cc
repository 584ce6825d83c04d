/* Ends below some frames: with glog's LOG(FATAL), or by a signal that glog reports. Prints where its
 * libraries are. Usage: glog log|signal */
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <glog/logging.h>

static volatile int sink;
static const char *way;

static int compare(const void *a, const void *b) {
    if (!strcmp(way, "log"))
        LOG(FATAL) << "deep";
    *static_cast<volatile int *>(nullptr) = 1;
    return *static_cast<const int *>(a) - *static_cast<const int *>(b);
}

static __attribute__((noinline)) void descend(int depth) {
    auto bytes = static_cast<volatile char *>(__builtin_alloca(size_t(16 + 8 * (depth % 5))));
    bytes[0] = 1;
    if (depth > 0)
        descend(depth - 1);
    int numbers[] = {3, 1, 2};
    qsort(numbers, 3, sizeof *numbers, compare);
    sink = bytes[0];
}

int main(int, char **argv) {
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps))
        fputs(line, stdout);
    fflush(stdout);
    way = argv[1];
    google::InitGoogleLogging(argv[0]);
    google::InstallFailureSignalHandler();
    FLAGS_logtostderr = true;
    descend(10);
}
