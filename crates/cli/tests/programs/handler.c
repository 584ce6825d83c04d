// A signal handler that returns.
#include <signal.h>

static volatile long sink;

static __attribute__((noipa)) void on_signal(int number)
{
    sink += number;
}

__attribute__((noipa)) long interrupted(long a, long b)
{
    long product = a * b;
    raise(SIGUSR1);
    return product + sink;
}

int main(int count, char **arguments)
{
    (void)arguments;
    signal(SIGUSR1, on_signal);
    return interrupted(count, 3) == 5;
}
