/* Makes types, writes them to made.ctf, and reads that. */
#include <stdio.h>
#include <unspool_types.h>

static unspool_type type(unspool_type_kind kind, const char *name, uint64_t size, unspool_type_id target)
{
	unspool_type made = { .struct_size = sizeof made, .kind = kind, .name = name, .size = size, .target = target };
	return made;
}

int main(void)
{
	unspool_types *types = unspool_types_new();
	unspool_type integer = type(UNSPOOL_TYPE_INTEGER, "int", 4, 0);
	unspool_type_id number, point, pointer;
	char text[64];

	integer.format = UNSPOOL_TYPE_SIGNED;
	number = unspool_type_add(types, &integer, NULL, 0);
	unspool_type_member members[] = {
		{ sizeof *members, "x", number, 0, 0, 0 },
		{ sizeof *members, "y", number, 32, 0, 0 },
	};
	unspool_type_member sides[] = {
		{ sizeof *sides, "LEFT", 0, 0, 0, -1 },
		{ sizeof *sides, "RIGHT", 0, 0, 0, 1 },
	};
	unspool_type record = type(UNSPOOL_TYPE_STRUCT, "point", 8, 0);
	unspool_type side = type(UNSPOOL_TYPE_ENUM, "side", 4, 0);
	unspool_type reference = type(UNSPOOL_TYPE_POINTER, "", 0, 0);

	point = unspool_type_add(types, &record, members, 2);
	unspool_type_add(types, &side, sides, 2);
	reference.target = point;
	pointer = unspool_type_add(types, &reference, NULL, 0);
	if (pointer == 0 || unspool_types_declare(types, "here", pointer) != 0 ||
	    unspool_type_of_symbol(types, "here") != pointer ||
	    unspool_type_named(types, "struct point") != point || unspool_type_named(types, "struct none") != 0)
		return printf("%s\n", unspool_types_error()), 1;
	if (unspool_type_text(types, pointer, "here", text, sizeof text) != 18)
		return 2;
	puts(text);
	if (unspool_types_write(types, "made.ctf", UNSPOOL_TYPES_CTF) != 0)
		return printf("%s\n", unspool_types_error()), 1;
	unspool_types_close(types);

	/* Bare CTF does not say how wide addresses are: they have eight bytes. */
	unspool_type got = { .struct_size = sizeof got };
	types = unspool_types_open("made.ctf");
	if (types == NULL || unspool_type_get(types, unspool_type_of_symbol(types, "here"), &got) != 0)
		return printf("%s\n", unspool_types_error()), 1;
	printf("%d bytes\n", (int) got.size);
	unspool_types_close(types);
	return 0;
}
