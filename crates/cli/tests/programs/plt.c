// Calls a function of another library for the first time, through the PLT stub that makes the
// dynamic linker resolve it.
#include <stdlib.h>

__attribute__((noipa)) long calls(long a)
{
    long b = rand() + a;
    return b * rand();
}

int main(int count, char **arguments)
{
    (void)arguments;
    return calls(-count) == 7;
}
