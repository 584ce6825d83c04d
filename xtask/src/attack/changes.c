// changes HOW FOLDER FIRST SECOND: runs code in copies of a library, and repeatedly truncates, extends and
// replaces them, or overwrites them in place with a second one. HOW is truncate or overwrite.
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char *content[2];
static size_t size[2];

static void load(int which, const char *path)
{
    struct stat stat;
    int file = open(path, O_RDONLY);
    fstat(file, &stat);
    size[which] = stat.st_size;
    content[which] = malloc(stat.st_size);
    if (read(file, content[which], size[which]) != (ssize_t)size[which])
        exit(2);
    close(file);
}

static void put(const char *path, int which, int flags)
{
    int file = open(path, O_WRONLY | O_CREAT | flags, 0755);
    if (write(file, content[which], size[which]) != (ssize_t)size[which])
        exit(2);
    close(file);
}

// In a separate process, which a lost page may kill.
static pid_t run(const char *path)
{
    pid_t child = fork();
    if (child)
        return child;
    alarm(2);
    int (*spin)(long) = (int (*)(long))dlsym(dlopen(path, RTLD_NOW), "spin");
    for (;;)
        spin(1000);
}

int main(int count, char **arguments)
{
    if (count != 5)
        return 2;
    alarm(120);
    int truncates = !strcmp(arguments[1], "truncate");
    load(0, arguments[3]);
    load(1, arguments[4]);
    for (unsigned round = 0;; round++) {
        char path[4096], other[4200];
        // A new name, so that root opens it again.
        snprintf(path, sizeof path, "%s/lib%u.so", arguments[2], round);
        snprintf(other, sizeof other, "%s.new", path);
        put(path, 0, 0);
        pid_t child = run(path);
        for (int change = 0; change < 40; change++) {
            usleep(5000 + rand() % 5000);
            if (!truncates) {
                put(path, change & 1, O_TRUNC * (change % 3 == 0));
                continue;
            }
            int failed = 0;
            switch (change % 4) {
            case 0: failed = truncate(path, rand() % size[0]); break;
            case 1: failed = truncate(path, size[0] * 2); break;
            case 2: put(path, 0, 0); break;
            case 3: failed = truncate(path, 0); break;
            }
            if (failed)
                return 2;
            if (change == 31) {
                put(other, 1, 0);
                rename(other, path);
            }
        }
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        unlink(path);
    }
}
