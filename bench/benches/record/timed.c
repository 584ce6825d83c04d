// Runs a command, and writes the CPU time of it and its children, in microseconds, and the peak memory of any
// of them, in KiB. This is a separate program, since Linux includes the memory of a process before `exec`,
// and a benchmark may have had more.
//
//     timed FILE COMMAND...
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc < 3)
        return 2;
    pid_t pid = fork();
    if (pid == 0) {
        execvp(argv[2], argv + 2);
        _exit(127);
    }
    int status;
    struct rusage usage;
    if (pid < 0 || wait4(pid, &status, 0, &usage) < 0)
        return 1;
    FILE *file = fopen(argv[1], "w");
    if (!file)
        return 1;
    long long micros = (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000LL +
                       usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
    fprintf(file, "%lld %ld\n", micros, usage.ru_maxrss);
    return fclose(file) != 0 || !WIFEXITED(status) ? 1 : WEXITSTATUS(status);
}
