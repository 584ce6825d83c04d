/* Functions of many forms, compiled in many ways. */
#include <alloca.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int (*operation)(int, int);

static int add(int a, int b) { return a + b; }
static int shift(int a, int b) { return b > 30 ? 0 : a << b; }

/* Only through pointers. */
static const operation operations[] = { add, shift };

__attribute__((noreturn, noinline)) static void give_up(const char *why)
{
	fprintf(stderr, "%s\n", why);
	exit(3);
}

/* A jump table, and a way out that never returns. */
__attribute__((noinline)) static int choose(int what, int value)
{
	switch (what) {
	case 0: return value + 3;
	case 1: return value * 7;
	case 2: return (int)strtol("12", NULL, 10) + value;
	case 3: return value ^ 0x55;
	case 4: return abs(value);
	case 5: return operations[value & 1](value, what);
	case 6: return value / (what + 1);
	default: give_up("no such thing");
	}
}

/* A frame whose size is known at run time only. */
__attribute__((noinline)) static int sum_of_copy(const char *text, int n)
{
	char *copy = alloca((size_t)n + 1);
	memcpy(copy, text, (size_t)n);
	copy[n] = 0;
	int sum = 0;
	for (int i = 0; copy[i]; i++)
		sum += choose(copy[i] % 7, sum);
	return sum;
}

/* Many values that live across calls. */
__attribute__((noinline)) static int busy(int a, int b, int c, int d, int e, int f, int g, int h)
{
	int x = choose(a & 3, b), y = choose(c & 3, d), z = choose(e & 3, f), w = choose(g & 3, h);
	for (int i = 0; i < (x & 7); i++) {
		y += choose(i % 7, z);
		if (y > 100000)
			return x + w;
	}
	return a + b + c + d + e + f + g + h + x + y + z + w;
}

/* A call in its place. */
__attribute__((noinline)) static int forward(int a, int b)
{
	char text[32];
	snprintf(text, sizeof text, "%d", a);
	return choose((int)strlen(text) % 7, b);
}

static jmp_buf there;

__attribute__((noinline)) static int jump(int depth)
{
	if (depth == 0)
		longjmp(there, 1);
	return jump(depth - 1) + depth;
}

/* An aligned frame. */
__attribute__((noinline)) static double spread(const double *from, int n)
{
	_Alignas(64) double block[8] = { 0 };
	for (int i = 0; i < n; i++)
		block[i & 7] += from[i];
	double sum = 0;
	for (int i = 0; i < 8; i++)
		sum += block[i] * choose(i % 7, i);
	return sum;
}

int main(int argc, char **argv)
{
	double numbers[20];
	for (int i = 0; i < 20; i++)
		numbers[i] = i * argc;
	int sum = sum_of_copy(argv[0], (int)strlen(argv[0]));
	sum += busy(argc, sum, 3, 4, 5, 6, 7, 8) + forward(argc, 9) + (int)spread(numbers, 20);
	if (setjmp(there) == 0)
		sum += jump(argc + 5);
	printf("%d\n", sum);
	return 0;
}
