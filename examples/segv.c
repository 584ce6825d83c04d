/* What has crashed? From the handler of the signal. cc segv.c $(pkg-config --cflags --libs unspool) */
#define _GNU_SOURCE
#include <signal.h>
#include <string.h>
#include <unistd.h>
#include <unspool.h>

static void print(const char *text)
{
	(void)!write(STDERR_FILENO, text, strlen(text));
}

static void print_address(const void *address)
{
	char text[] = "0x0000000000000000\n";
	uintptr_t rest = (uintptr_t)address;
	for (char *digit = text + sizeof text - 3; rest; rest >>= 4)
		*digit-- = "0123456789abcdef"[rest & 15];
	print(text);
}

/* Calls nothing that is not async-signal-safe. */
static void handle(int signal, siginfo_t *info, void *ucontext)
{
	void *addresses[64];
	unspool_walk walk;
	size_t count = unspool_backtrace_from(ucontext, addresses, 64, &walk);

	(void)info;
	print("crashed at\n");
	for (size_t i = 0; i < count; i++)
		print_address(addresses[i]);
	print(unspool_end_text(walk.end));
	print("\n");
	/* SA_RESETHAND: what follows is what would have been without a handler. */
	raise(signal);
}

int *volatile nowhere;

int crash(int value)
{
	*nowhere = value;
	return value + 1;
}

int middle(int value)
{
	return crash(value + 1) + 1;
}

int main(void)
{
	/* The stack may be full. */
	static char room[1 << 16];
	stack_t stack = {.ss_sp = room, .ss_size = sizeof room};
	struct sigaction action = {.sa_sigaction = handle,
	                           .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESETHAND};
	sigaltstack(&stack, NULL);
	sigaction(SIGSEGV, &action, NULL);
	return middle(1);
}
