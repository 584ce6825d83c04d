/* Spends its time in functions that are called with two values each, in turn. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum kind { COLD, WARM = 7 };

static volatile unsigned long sink;

/* Both arguments are needed to the end, so that they are kept. */
__attribute__((noinline)) unsigned long spin(long times, enum kind kind)
{
	for (long n = 0; n < times; n++)
		sink += kind;
	return sink + times;
}

__attribute__((noinline)) unsigned long parse_file(const char *path, long times)
{
	unsigned long length = strlen(path);
	length += spin(times, length == 3 ? COLD : WARM);
	return length + strlen(path) + times;
}

int main(int count, char **words)
{
	clock_t end = clock() + (count > 1 ? atoi(words[1]) : 1) * CLOCKS_PER_SEC;
	char own[] = "own";
	while (clock() < end) {
		parse_file("abc", 200000);
		parse_file("config.txt", 100000);
		parse_file("config.txt", 100000);
		own[0] ^= parse_file(own, 10) == 0;
	}
	return 0;
}
