/* The bytes of a signal handler's stack used by a function, at its first call and at its second.
 * Without a name, prints the names of the functions. Usage: stack [NAME] */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unspool.h>

enum { SIZE = 256 << 10, UNTOUCHED = 0x5a };

static char *frame;
static const void *interrupted;
static unspool_cursor cursor;
static void *addresses[64];
static volatile int sink;

// The next call uses the stack below this.
#define MARK __asm__ volatile("mov %%rsp, %0" : "=r"(frame))

static void backtrace(void)
{
	MARK;
	sink += unspool_backtrace(addresses, 64, NULL);
}

static void backtrace_from(void)
{
	MARK;
	sink += unspool_backtrace_from(interrupted, addresses, 64, NULL);
}

static void cursor_here(void)
{
	MARK;
	unspool_cursor_here(&cursor);
}

static void cursor_from(void)
{
	MARK;
	unspool_cursor_from(&cursor, interrupted);
}

// The next functions use the cursor left by `deep`.
static void step(void)
{
	MARK;
	while (unspool_step(&cursor) > 0)
		sink++;
}

static void get_register(void)
{
	MARK;
	for (int number = UNSPOOL_RAX; number <= UNSPOOL_RIP; number++)
		sink += unspool_get_register(&cursor, number, NULL);
}

static void set_register(void)
{
	MARK;
	sink += unspool_set_register(&cursor, UNSPOOL_RBX, 0);
}

static void save_location(void)
{
	void *address;
	MARK;
	sink += unspool_save_location(&cursor, UNSPOOL_RBX, &address);
}

static void get_cfa(void)
{
	uint64_t value;
	MARK;
	sink += unspool_get_cfa(&cursor, &value);
}

static void is_signal_frame(void)
{
	MARK;
	sink += unspool_is_signal_frame(&cursor);
}

static void module_of(void)
{
	unspool_module module;
	MARK;
	sink += unspool_module_of(unspool_address(&cursor), &module);
}

static void arguments(void)
{
	unspool_argument found[4];
	MARK;
	sink += unspool_arguments(&cursor, found, 4);
}

static const struct {
	const char *name;
	void (*call)(void);
} functions[] = {
	{"unspool_backtrace", backtrace},
	{"unspool_backtrace_from", backtrace_from},
	{"unspool_cursor_here", cursor_here},
	{"unspool_cursor_from", cursor_from},
	{"unspool_step", step},
	{"unspool_get_register", get_register},
	{"unspool_set_register", set_register},
	{"unspool_save_location", save_location},
	{"unspool_get_cfa", get_cfa},
	{"unspool_is_signal_frame", is_signal_frame},
	{"unspool_module_of", module_of},
	{"unspool_arguments", arguments},
};

static void (*function)(void);

static void handler(int signal, siginfo_t *info, void *context)
{
	(void)signal, (void)info;
	interrupted = context;
	function();
}

__attribute__((noinline)) static int deep(int levels)
{
	if (levels > 0)
		return deep(levels - 1) + 1;
	unspool_cursor_here(&cursor);
	return raise(SIGUSR1);
}

int main(int argc, char **argv)
{
	char *stack = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_ONSTACK | SA_SIGINFO};
	sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = SIZE}, NULL);
	sigaction(SIGUSR1, &action, NULL);
	for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
		if (argc < 2)
			puts(functions[i].name);
		else if (strcmp(functions[i].name, argv[1]) == 0)
			function = functions[i].call;
	}
	for (int round = 0; function && round < 2; round++) {
		memset(stack, UNTOUCHED, SIZE);
		if (deep(10) < 10)
			return 1;
		char *lowest = stack;
		while (*lowest == UNTOUCHED)
			lowest++;
		printf("%td\n", frame - lowest);
	}
	return 0;
}
