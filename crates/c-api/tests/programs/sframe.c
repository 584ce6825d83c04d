/* Prints its own stack's addresses as functions and offsets, with a signal's handler on it: by
 * the C library if requested, else by our library. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <signal.h>
#include <stdio.h>
#include <unspool.h>

static volatile int sink;
static int asks_glibc;

void handler(int signal);
void by_frame_pointer(int size);
int recurse(int depth);

void handler(int signal)
{
	void *addresses[64];
	int count = asks_glibc ? backtrace(addresses, 64)
			       : (int)unspool_backtrace(addresses, 64, NULL);

	/* The first is in this function. */
	for (int i = 1; i < count; i++) {
		Dl_info info = {0};

		dladdr(addresses[i], &info);
		if (info.dli_sname)
			printf("%s+%lx\n", info.dli_sname,
			       (long)((char *)addresses[i] - (char *)info.dli_saddr));
		else
			printf("unnamed\n");
	}
	sink = signal;
}

__attribute__((noinline)) void by_frame_pointer(int size)
{
	volatile char room[size];

	room[0] = 1;
	raise(SIGUSR1);
	sink = room[0];
}

__attribute__((noinline)) int recurse(int depth)
{
	volatile char room[100];

	room[0] = (char)depth;
	if (depth == 0) {
		by_frame_pointer(200);
		return 1;
	}
	return recurse(depth - 1) + room[0];
}

int main(int count, char **arguments)
{
	asks_glibc = count > 1 && arguments[1];
	if (unspool_prepare_thread())
		return 2;
	signal(SIGUSR1, handler);
	return recurse(20) == 0;
}
