// A process with malicious names of its thread, its file, and its arguments.
#include <sys/prctl.h>
#include <unistd.h>

// The task overwrites the name in the symbol table.
__attribute__((noinline)) int function_XXXXXXXXXXXXXXXX(int a)
{
    volatile int sum = a;
    for (int n = 0; n < 100000; n++)
        sum += n * a;
    return sum;
}

int main(void)
{
    alarm(120);
    prctl(PR_SET_NAME, "\x1b[31m\nFORGED\x9b");
    volatile int sum = 0;
    for (;;)
        sum += function_XXXXXXXXXXXXXXXX(sum);
}
