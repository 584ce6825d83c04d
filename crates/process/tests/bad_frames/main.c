// A program with a bad stack. main SCENE wait: says "ready" when it stands there, and waits.
// main SCENE die: dies there. main SCENE WALKER LIBRARY: walks the stack by a library that has the walker,
// and prints addresses.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "scenes.h"

static void wait_here(void *context) {
	(void)context;
	if (write(1, "ready\n", 6) != 6)
		_exit(98);
	for (;;)
		pause();
}

static void die(void *context) {
	(void)context;
	__builtin_trap();
}

// The first frames that were found, and how many there were.
static uint64_t frames[256];
static uint64_t count;

static void found(uint64_t address) {
	if (count < 256)
		frames[count] = address;
	count++;
}

static void print(void) {
	printf("%lu", count);
	for (uint64_t i = 0; i < count && i < 256; i++)
		printf(" %lx", frames[i]);
	putchar('\n');
	fflush(stdout);
}

// The functions of the libraries, by name.
struct walker {
	const char *name;
	const char *functions[4];
	body *walk;
};
static void *functions[4];

static int trace(void *context, void *data) {
	(void)data;
	found(((uint64_t (*)(void *))functions[1])(context));
	return 0;
}

// `_Unwind_Backtrace`.
static void by_callback(void *context) {
	(void)context;
	((int (*)(void *, void *))functions[0])(trace, NULL);
	print();
}

// `backtrace` and `unw_backtrace`.
static void by_buffer(void *context) {
	static void *buffer[1 << 16];
	(void)context;
	int all = ((int (*)(void **, int))functions[0])(buffer, 1 << 16);
	for (int i = 0; i < all; i++)
		found((uint64_t)buffer[i]);
	print();
}

// `unspool_backtrace`.
static void by_our_buffer(void *context) {
	static void *buffer[1 << 16];
	(void)context;
	size_t all = ((size_t (*)(void **, size_t, void *))functions[0])(buffer, 1 << 16, NULL);
	for (size_t i = 0; i < all; i++)
		found((uint64_t)buffer[i]);
	print();
}

// `unw_step`.
static void by_steps(void *context) {
	static uint64_t registers[512], cursor[512];
	(void)context;
	((int (*)(void *))functions[0])(registers);
	((int (*)(void *, void *))functions[1])(cursor, registers);
	do {
		uint64_t address = 0;
		((int (*)(void *, int, uint64_t *))functions[3])(cursor, 16, &address);
		found(address);
	} while (((int (*)(void *))functions[2])(cursor) > 0);
	print();
}

static const struct walker walkers[] = {
	{"_Unwind_Backtrace", {"_Unwind_Backtrace", "_Unwind_GetIP"}, by_callback},
	{"backtrace", {"backtrace"}, by_buffer},
	{"unw_backtrace", {"unw_backtrace"}, by_buffer},
	{"unspool_backtrace", {"unspool_backtrace"}, by_our_buffer},
	{"unw_step",
		{"_Ux86_64_getcontext", "_ULx86_64_init_local", "_ULx86_64_step", "_ULx86_64_get_reg"},
		by_steps},
};

static body *walker(const char *name, const char *library) {
	struct rlimit limit = {1, 1};
	void *handle = dlopen(library, RTLD_NOW);
	for (size_t i = 0; handle && i < sizeof walkers / sizeof *walkers; i++) {
		if (strcmp(name, walkers[i].name))
			continue;
		for (int j = 0; j < 4 && walkers[i].functions[j]; j++)
			if (!(functions[j] = dlsym(handle, walkers[i].functions[j])))
				return NULL;
		// Whoever does not end is ended.
		setrlimit(RLIMIT_CPU, &limit);
		return walkers[i].walk;
	}
	return NULL;
}

int main(int arguments, char **argument) {
	if (arguments == 3 && !strcmp(argument[2], "wait"))
		run_scene(argument[1], CALLED, wait_here);
	if (arguments == 3 && !strcmp(argument[2], "die"))
		run_scene(argument[1], AT_FAULT, die);
	body *walk = arguments == 4 ? walker(argument[2], argument[3]) : NULL;
	if (walk)
		run_scene(argument[1], CALLED, walk);
	return 97;
}
