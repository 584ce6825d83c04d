/* A program that is killed with various variables on its stack. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum colour { RED, GREEN = 5, BLUE = -3 };

struct pair {
	int first;
	long second;
};

struct flags {
	unsigned low : 3;
	int middle : 6;
	unsigned long high : 40;
	enum colour colour : 4;
	_Bool set : 1;
};

struct nested {
	struct pair pairs[2];
	union {
		int number;
		float real;
	};
	char name[12];
	const char *text;
	struct flags flags;
};

typedef int (*operation)(int, int);

volatile int sink;
volatile long long_sink;

#ifdef __clang__
#define KEPT __attribute__((noinline))
#else
#define KEPT __attribute__((noinline, noclone))
#endif

KEPT void end(int why, double real, float single)
{
	volatile int local = why + 1;
	char parts[5] = { 'a', 0, '"', '\n', 'c' }, padded[8] = "a\001\\b";
	__asm__ volatile("" : : "r"(parts), "r"(padded) : "memory");
	sink = local;
	if (real > 0 && single > 0)
#ifdef TOUCHES_NULL
		*(volatile float *)0 = single + (float)real;
#else
		abort();
#endif
}

/* Parts of a structure that need not be in memory. */
KEPT int scattered(int number, const char *name)
{
	struct pair pair = { number, number * 2L };
	struct nested nested = { { { 1, 2 }, { 3, 4 } }, { 7 }, "scattered", name, { 5, -7, 1UL << 33, BLUE, 1 } };
	for (int index = 0; index < 3; index++)
		pair.second += index * sink;
	end(pair.first, 0.5, 1.25f);
	sink = nested.flags.middle + (int)pair.second;
	return nested.name[0] + (int)pair.second;
}

static inline int inner(int given, long other)
{
	int sum = given + (int)other;
	{
		int given = sum * 2;
		sink = given;
		sum += scattered(given, "inner");
	}
	return sum + sink;
}

static inline int outer(struct pair *pair)
{
	int product = pair->first * 3;
	long second = pair->second;
	return inner(product, second) + product;
}

/* Its argument is changed, and not used any more. */
KEPT int changes(int number, long unused, struct pair pair, enum colour colour, char letter)
{
	static int calls = 41;
	calls++;
	number += 100;
	sink = number;
	long numbers[3] = { number, -number, colour };
	int result = outer(&pair);
	long_sink = numbers[0] + numbers[1] + letter;
	return result + number;
}

KEPT int many(int a, int b, int c, int d, int e, int f, int on_stack, struct nested by_value, short last)
{
	operation none = 0;
	const int constant = 12;
	/* Core files do not contain it. */
	static const long table[] = { 10, 20, 30 };
	int result = changes(a + b + constant, c, (struct pair){ d, e }, GREEN, 'x');
	sink = f + on_stack + by_value.number + last + (none != 0) + (int)table[sink & 1];
	return result + by_value.pairs[1].first;
}

KEPT int variadic(int count, ...)
{
	va_list list;
	va_start(list, count);
	int first = va_arg(list, int);
	struct nested nested;
	memset(&nested, 0, sizeof nested);
	strcpy(nested.name, "by value");
	nested.number = first;
	int result = many(count, 2, 3, 4, 5, 6, 7, nested, -8);
	va_end(list);
	return result + first;
}

KEPT int recursive(int depth, unsigned char byte)
{
	double half = depth / 2.0;
	if (depth == 0)
		return variadic(2, 33, 44);
	int result = recursive(depth - 1, byte + 1);
	sink = (int)half + byte;
	return result + sink;
}

int main(int argc, char **argv)
{
	int total = argc;
	for (unsigned long index = 0; index < 2; index++) {
		int before = total;
		total += recursive(2, 200);
		sink = before;
	}
	return total + (argv != 0);
}
