/* Where am I? cc -rdynamic backtrace.c $(pkg-config --cflags --libs unspool) */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <unspool.h>

static void print_stack(void)
{
	void *addresses[64];
	unspool_walk walk;
	size_t count = unspool_backtrace(addresses, 64, &walk);

	for (size_t i = 0; i < count; i++) {
		/* The byte before a return address belongs to the call. */
		const char *call = (const char *)addresses[i] - 1;
		Dl_info info;
		if (dladdr(call, &info) && info.dli_sname)
			printf("%2zu %p %s\n", i, addresses[i], info.dli_sname);
		else
			printf("%2zu %p ?\n", i, addresses[i]);
	}
	printf("%s, %zu guessed\n", unspool_end_text(walk.end), walk.guesses);
}

int recurse(int depth)
{
	if (depth == 0)
		print_stack();
	else
		depth += recurse(depth - 1);
	return depth;
}

int main(void)
{
	/* Both are optional: they make walks faster. */
	unspool_prepare();
	unspool_prepare_thread();
	return recurse(3) != 6;
}
