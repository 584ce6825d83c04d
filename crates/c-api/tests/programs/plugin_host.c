// A plugin is used by a thread, and closed: by that thread or, after its end, by another.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

static const char *path;
static void *plugin;

static int is_loaded(void)
{
	void *again = dlopen(path, RTLD_NOW | RTLD_NOLOAD);

	return again && !dlclose(again);
}

static void *uses(void *result)
{
	plugin = dlopen(path, RTLD_NOW);
	if (!plugin)
		return "not loaded";
	int (*use)(void) = (int (*)(void))dlsym(plugin, "use");
	return use() ? "not used" : result;
}

static void *uses_and_closes(void *result)
{
	void *used = uses(result);

	return dlclose(plugin) ? "not closed" : used;
}

static const char *in_thread(void *(*run)(void *))
{
	pthread_t thread;
	void *result = "not run";

	if (pthread_create(&thread, NULL, run, NULL) || pthread_join(thread, &result))
		return result;
	return result;
}

int main(int count, char **arguments)
{
	if (count != 2)
		return 2;
	path = arguments[1];
	for (int i = 0; i < 3; i++) {
		const char *problem = in_thread(uses_and_closes);
		if (!problem)
			problem = in_thread(uses);
		if (!problem && dlclose(plugin))
			problem = "not closed";
		// If it was closed too early, it is unloaded with this.
		if (!problem && is_loaded())
			problem = "still there";
		if (problem) {
			puts(problem);
			return 3;
		}
	}
	puts("all is well");
	return 0;
}
