// The results of unspool_prepare.
#define _GNU_SOURCE
#include <dlfcn.h>
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

static int is_same;

static void compare(void)
{
	void *ours[64], *theirs[64];
	size_t expected = (size_t)backtrace(theirs, 64);
	size_t count = unspool_backtrace(ours, 64, NULL);

	is_same = count == expected && !memcmp(ours + 1, theirs + 1, (count - 1) * sizeof *ours);
}

// From a function of a library that is unloaded afterwards.
static void compare_in(const char *path)
{
	void *library = dlopen(path, RTLD_NOW);
	void (*called)(void (*)(void)) = (void (*)(void (*)(void)))dlsym(library, "called");

	called(compare);
	dlclose(library);
}

// The arguments are a library that is loaded in advance, and one that is loaded behind it later.
int main(int count, char **arguments)
{
	void *library = count > 1 ? dlopen(arguments[1], RTLD_NOW) : NULL;
	int tables = unspool_prepare();
	unspool_module module = {0};

	printf("%d tables", tables);
	if (unspool_module_of(__builtin_return_address(0), &module) == 0 && module.has_table)
		printf(", the C library's too");
	if (unspool_module_of((void *)main, &module) == 0 && module.has_table)
		printf(", the program's too");
	compare();
	if (library) {
		compare_in(arguments[1]);
		dlclose(library);
		// Not at the old address.
		dlopen(arguments[2], RTLD_NOW);
		compare_in(arguments[1]);
	}
	printf("; %s\n", is_same ? "same" : "not the same");
	// Mappings are kept: nothing is mapped again, and nothing else stays mapped.
	int before = mappings();
	int again = unspool_prepare();
	if (mappings() != before)
		printf("%d mappings, then %d\n", before, mappings());
	return again;
}
