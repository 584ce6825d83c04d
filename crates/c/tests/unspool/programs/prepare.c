// What unspool_prepare finds.
#define _GNU_SOURCE
#include <execinfo.h>
#include <stdio.h>
#include <string.h>
#include <unspool.h>

static int mappings(void)
{
	char line[512];
	int count = 0;
	FILE *maps = fopen("/proc/self/maps", "r");

	while (fgets(line, sizeof line, maps))
		count++;
	fclose(maps);
	return count;
}

int main(void)
{
	void *ours[64], *theirs[64];
	int tables = unspool_prepare();
	unspool_module module = {0};

	printf("%d tables", tables);
	if (unspool_module_of(__builtin_return_address(0), &module) == 0 && module.has_table)
		printf(", the C library's too");
	if (unspool_module_of((void *)main, &module) == 0 && module.has_table)
		printf(", the program's too");
	size_t expected = (size_t)backtrace(theirs, 64);
	size_t count = unspool_backtrace(ours, 64, NULL);
	int same = count == expected && !memcmp(ours + 1, theirs + 1, (count - 1) * sizeof *ours);
	printf("; %s\n", same ? "same" : "not the same");
	// What is mapped stays: nothing is mapped again; and nothing more is mapped for good.
	int before = mappings();
	int again = unspool_prepare();
	if (mappings() != before)
		printf("%d mappings, then %d\n", before, mappings());
	return again;
}
