/*
 * Arguments are overwritten in ways that are easily overlooked.
 *
 * frame: NAME ARGUMENTS has the arguments of a function.
 */
#include <setjmp.h>
#include <signal.h>
#include <string.h>

#define APART __attribute__((noipa))

struct wide {
	long words[40];
};

volatile long sink;
jmp_buf place;

APART void dies(void)
{
	raise(SIGSEGV);
}

/* A string instruction writes without an explicit operand: rcx times, from the address in rdi on. */
APART long cleared(struct wide wide, long last) /* frame: cleared ? 9 */
{
	memset(&wide, 0, sizeof wide);
	__asm__ volatile("" : : "r"(&wide) : "memory");
	dies();
	return wide.words[3] + last;
}

/* Arguments in memory belong to the callee, also after a padding word. */
APART long changes(long a, long b, long c, long d, long e, long f, long seventh, __int128 wide, long last)
{
	*(volatile long *)&seventh = 1234;
	*(volatile long *)&last = 1234;
	struct wide other = { { 101, 102 } };
	return cleared(other, 9) + a + b + c + d + e + f + (long)wide;
}

APART long gives(long x, long y) /* frame: gives 6 11 */
{
	long got = changes(1, 2, 3, 4, 5, 6, y, (__int128)3, x);
	return got + sink;
}

/* An unknown number of words is written, and then the callee's. */
APART long writes(long x, long y) /* frame: writes 77 78 */
{
	volatile long many[300];
	for (int at = 0; at < 300; at++)
		many[at] = at;
	long got = gives(6, 11) + many[7];
	return got + changes(1, 2, 3, 4, 5, 6, y, 3, x);
}

/* Control returns to setjmp after the parameters were changed. */
APART long returns_twice(volatile int first, volatile int second) /* frame: returns_twice 6 12 */
{
	if (setjmp(place))
		return writes(77, 78) + first + second;
	first = 77;
	second++;
	longjmp(place, 1);
}

int main(void)
{
	return (int)returns_twice(6, 12);
}
