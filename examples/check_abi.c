/* A program with plugins: it calls one only if both have the same `struct request`.
 * cc -gctf -rdynamic check_abi.c $(pkg-config --cflags --libs unspool-types)
 * ./check_abi ./plugin.so */
#include <dlfcn.h>
#include <stdio.h>
#include <unspool_types.h>

struct request {
	int kind;
	long size;
};

/* The types are those of data that has them. */
struct request example = { 1, 100 };

static int report(const unspool_type_change *change, void *data)
{
	(void)data;
	printf("%s: %s\n", change->subject, change->message);
	return 0;
}

/* How many differences break calls: the ABI of the plugin and ours, while both run. */
static int differences(const void *theirs)
{
	unspool_types *own = unspool_types_of_address(&example);
	unspool_types *other = unspool_types_of_address(theirs);
	unspool_type_id here = unspool_type_named(own, "struct request");
	unspool_type_id there = unspool_type_named(other, "struct request");
	int breaking = unspool_type_compare(own, here, other, there, report, NULL);

	if (breaking < 0)
		printf("%s\n", unspool_types_error());
	unspool_types_close(own);
	unspool_types_close(other);
	return breaking;
}

int main(int count, char **names)
{
	void *plugin = count > 1 ? dlopen(names[1], RTLD_NOW) : NULL;
	long (*serve)(const struct request *) =
		plugin == NULL ? NULL : (long (*)(const struct request *))dlsym(plugin, "serve");

	if (serve == NULL)
		return printf("no plugin\n"), 2;
	if (differences((const void *)serve) != 0)
		return printf("not called\n"), 1;
	printf("served %ld\n", serve(&example));
	return 0;
}
