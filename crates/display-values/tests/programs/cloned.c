/* A program, in C and in C++, that is killed in functions with arguments that are no longer available. */
#include <stdlib.h>

volatile int sink = 7;

/* Compilers make a clone of it with fewer parameters: all calls pass the same `fixed`. */
static __attribute__((noinline)) void cloned(int first, int fixed)
{
	sink = first + fixed;
	sink = 0;
	if (sink == 0)
		abort();
}

/* It takes the parameters of its prototype. */
__attribute__((noinline, noclone, noipa)) void whole(int first)
{
	sink = first;
	cloned(sink, 3);
	sink = 1;
}

int main(void)
{
	whole(sink);
	cloned(sink, 3);
	return 0;
}
