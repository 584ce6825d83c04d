// A process whose names are not for a terminal: its thread's, its file's, its arguments'.
#include <sys/prctl.h>
#include <unistd.h>

// The name that the symbol table has is written over by the task.
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
