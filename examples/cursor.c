/* Frame by frame, with registers. cc cursor.c $(pkg-config --cflags --libs unspool) */
#include <inttypes.h>
#include <stdio.h>
#include <unspool.h>

static void print_frame(const unspool_cursor *cursor)
{
	static const struct {
		const char *name;
		int number;
	} registers[] = {
		{"rbx", UNSPOOL_RBX}, {"rbp", UNSPOOL_RBP}, {"r12", UNSPOOL_R12},
		{"r13", UNSPOOL_R13}, {"r14", UNSPOOL_R14}, {"r15", UNSPOOL_R15},
	};
	uint64_t value, cfa = 0;

	unspool_get_cfa(cursor, &cfa);
	printf("%p cfa=%#" PRIx64 " %s\n", unspool_address(cursor), cfa,
	       unspool_evidence_text(unspool_evidence_of(cursor)));
	for (size_t i = 0; i < sizeof registers / sizeof *registers; i++) {
		void *where;
		int place = unspool_save_location(cursor, registers[i].number, &where);
		if (unspool_get_register(cursor, registers[i].number, &value))
			continue;
		printf("  %s=%#" PRIx64, registers[i].name, value);
		if (place == UNSPOOL_IN_MEMORY)
			printf(" saved at %p", where);
		printf("\n");
	}
}

__attribute__((noinline)) static void walk(void)
{
	unspool_cursor cursor;

	unspool_cursor_here(&cursor);
	do
		print_frame(&cursor);
	while (unspool_step(&cursor));
	printf("%s\n", unspool_end_text(unspool_end_of(&cursor)));
}

int main(void)
{
	walk();
	return 0;
}
