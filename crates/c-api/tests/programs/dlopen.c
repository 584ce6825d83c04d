// The library is loaded at run time, used by a thread, and closed before that thread ends.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static void *library;

static void *in_thread(void *argument)
{
	int (*prepare)(void) = (int (*)(void))dlsym(library, "unspool_prepare_thread");
	size_t (*backtrace)(void **, size_t, void *) =
		(size_t (*)(void **, size_t, void *))dlsym(library, "unspool_backtrace");
	void *addresses[16];

	if (prepare() || backtrace(addresses, 16, NULL) != 3)
		exit(3);
	return dlclose(library) ? NULL : argument;
}

int main(int count, char **arguments)
{
	pthread_t thread;
	void *result;

	if (count != 2 || !(library = dlopen(arguments[1], RTLD_NOW)))
		return 2;
	if (pthread_create(&thread, NULL, in_thread, arguments) || pthread_join(thread, &result))
		return 4;
	puts(result == arguments ? "all is well" : "not closed");
	return 0;
}
