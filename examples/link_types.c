/* Links the types of object files: each once. cc link_types.c $(pkg-config --cflags --libs unspool-types)
 * ./link_types OUT.ctf FILE... */
#include <stdio.h>
#include <unspool_types.h>

int main(int count, char **names)
{
	unspool_types *units[64];
	size_t opened = 0;

	for (int i = 2; i < count && opened < 64; i++, opened++)
		if ((units[opened] = unspool_types_open(names[i])) == NULL)
			return fprintf(stderr, "%s\n", unspool_types_error()), 1;

	/* The linker. */
	unspool_types *all = unspool_types_link((const unspool_types *const *)units, opened);
	if (all == NULL || unspool_types_write(all, names[1], UNSPOOL_TYPES_CTF) != 0)
		return fprintf(stderr, "%s\n", unspool_types_error()), 1;

	printf("%u types\n", unspool_type_last(all));
	unspool_types_close(all);
	while (opened > 0)
		unspool_types_close(units[--opened]);
	return 0;
}
