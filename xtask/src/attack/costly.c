// A process that costs those who look at it as much as it can. In the file that the second argument names, it
// notes for how long it stood still in all, in nanoseconds, a tenth of a second or more at a time.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static void *watch(void *path)
{
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (file < 0 || ftruncate(file, sizeof(uint64_t)) != 0)
        exit(1);
    volatile uint64_t *stopped = mmap(NULL, sizeof *stopped, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    for (uint64_t last = now();; ) {
        usleep(1000);
        uint64_t time = now();
        if (time - last > 100000000)
            *stopped += time - last;
        last = time;
    }
}

// A loop in memory without a file: 1: dec %rdi; jnz 1b; ret
static void work(void)
{
    static const unsigned char loop[] = { 0x48, 0xff, 0xcf, 0x75, 0xfb, 0xc3 };
    void *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(code, loop, sizeof loop);
    for (;;)
        ((void (*)(long))code)(1000000);
}

// A perf map of 256 MiB, in which each line names other code.
static void perf_map(void)
{
    char path[64];
    snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
    FILE *map = fopen(path, "w");
    for (unsigned n = 0; ftell(map) < 256 << 20; n += 100000)
        for (unsigned line = n; line < n + 100000; line++)
            fprintf(map, "%x 1 f\n", line);
    fclose(map);
    work();
}

// A jitdump of 700 MiB of unwind tables, most of it holes.
static void jitdump(void)
{
    enum { SIZE = 7 << 20 };
    char path[64];
    snprintf(path, sizeof path, "/tmp/jit-%d.dump", getpid());
    int dump = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    uint32_t header[10] = { 0x4a695444, 1, sizeof header, 62, 0, getpid() };
    uint64_t table[5] = { 4 | (uint64_t)SIZE << 32, 0, SIZE - sizeof table, 0, 0 };
    uint64_t load[8] = { (uint64_t)sizeof load << 32, 0, getpid(), 0, 0, 1, 0, 'f' };
    off_t at = pwrite(dump, header, sizeof header, 0);
    for (uint64_t n = 0; n < 100; n++) {
        load[3] = load[4] = 0x100000 + n * 16;
        load[6] = n;
        if (pwrite(dump, table, sizeof table, at) < 0 || pwrite(dump, load, sizeof load, at + SIZE) < 0)
            exit(1);
        at += SIZE + sizeof load;
    }
    mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, dump, 0);
    work();
}

__attribute__((noinline)) static int deep(int more)
{
    while (more == 0)
        pause();
    return deep(more - 1) + 1;
}

static void *deep_stack(void *unused)
{
    deep(500000);
    return unused;
}

struct level0 { long value; char *text; };
struct level1 { struct level0 part[8]; };
struct level2 { struct level1 part[8]; };
struct level3 { struct level2 part[8]; };
struct level4 { struct level3 part[8]; };
struct level5 { struct level4 part[8]; };
struct level6 { struct level5 part[8]; };

__attribute__((noinline)) static void nested(struct level6 *all)
{
    struct level6 local;
    memset(&local, 0, sizeof local);
    for (struct level0 *part = (struct level0 *)&local; (void *)part < (void *)(&local + 1); part++)
        part->text = (char *)all;
    for (;;) {
        pause();
        __asm__ volatile("" : : "r"(&local) : "memory");
    }
}

int main(int count, char **words)
{
    static struct level6 all;
    pthread_t thread;
    pthread_attr_t large;
    alarm(120);
    if (count < 3)
        return 1;
    pthread_create(&thread, NULL, watch, words[2]);
    pthread_attr_init(&large);
    pthread_attr_setstacksize(&large, 256 << 20);
    if (strcmp(words[1], "perf-map") == 0)
        perf_map();
    if (strcmp(words[1], "jitdump") == 0)
        jitdump();
    if (strcmp(words[1], "nothing") == 0)
        work();
    memset(&all, 'x', sizeof all);
    if (strcmp(words[1], "nested") == 0)
        nested(&all);
    pthread_create(&thread, &large, deep_stack, NULL);
    for (;;)
        pause();
}
