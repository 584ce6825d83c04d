/* Prints the arguments of the functions on its own stack by unspool_arguments. Then it is killed
   if requested. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unspool.h>

enum colour { RED = 1, GREEN = 5 };
enum access { READ = 1, WRITE = 2, EXECUTE = 4 };
struct pair { int first; long second; };

volatile long sink;

#define APART __attribute__((noinline, noclone))

static void print(const unspool_cursor *cursor)
{
	unspool_argument arguments[4];
	size_t count = unspool_arguments(cursor, arguments, 4);
	if (unspool_arguments(cursor, NULL, 0) != count)
		printf("another count\n");
	for (size_t index = 0; index < count && index < 4; index++) {
		unspool_argument *own = &arguments[index];
		printf("%zu %.*s kind %d bytes %zu certainty %d value %llu\n", count, (int)own->type_length, own->type,
		       own->kind, own->bytes, own->certainty, (unsigned long long)own->value);
	}
}

APART int inner(enum colour colour, signed char small, enum access access)
{
	if (getenv("CRASH"))
		raise(SIGSEGV);
	unspool_cursor cursor;
	unspool_cursor_here(&cursor);
	for (int frame = 0; frame < 3; frame++) {
		print(&cursor);
		unspool_step(&cursor);
	}
	return colour + small + access;
}

APART long middle(struct pair pair, long forgotten)
{
	sink = forgotten;
	int got = inner(GREEN, -7, READ | EXECUTE | 8);
	return got + pair.first + pair.second;
}

APART long outer(long kept, _Bool yes)
{
	struct pair pair = {-3, 77};
	long got = middle(pair, 4000000000);
	return got + kept + yes;
}

int main(void)
{
	unspool_prepare();
	return outer(11, 1) == 0;
}
