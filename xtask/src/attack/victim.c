// A process that is recorded during an attack: each of its stacks is inner, outer, main.
#include <unistd.h>

__attribute__((noinline)) static int inner(int a)
{
    volatile int sum = a;
    for (int n = 0; n < 100000; n++)
        sum += n * a;
    return sum;
}

__attribute__((noinline)) static int outer(int a)
{
    return inner(a) + 1;
}

int main(void)
{
    alarm(120);
    volatile int sum = 0;
    for (;;)
        sum += outer(sum);
}
