/*
 * Called by a program of another source in place of its final `abort` or signal. Reports all
 * variables on the stack by unspool_variables, into a file, and ends the program. Compiled
 * without -g, so that it has no variables of its own.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unspool_variables.h>

static FILE *out;

/* Whether the bytes of a number are equal to its text. */
static int is_same(const unspool_variable *own)
{
	int number;
	if (strcmp(own->type, "int") != 0 || !own->value || own->size != sizeof number)
		return 1;
	memcpy(&number, own->bytes, sizeof number);
	return atoi(own->value) == number && memcmp(own->known, "\xff\xff\xff\xff", 4) == 0;
}

static int tell_one(const unspool_variable *own, void *data)
{
	if (!own->value == !own->lost || !own->value != !own->bytes || !own->entry != !own->certainty)
		fprintf(out, "%s is known and lost\n", own->name);
	if (!is_same(own))
		fprintf(out, "%s has other bytes\n", own->name);
	fprintf(out, "%zu\t%p\t%s\t%zu\t%d\t%zu\t%s\t%s\t%s\t%s\t%s\t%d\n", own->frame, own->address, own->function, own->inlined,
	        own->is_parameter, own->block, own->name, own->type, own->value ? own->value : "", own->lost ? own->lost : "",
	        own->entry ? own->entry : "", own->certainty);
	++*(int *)data;
	return 0;
}

static void tell_problem(const char *text, void *data)
{
	(void)data;
	fprintf(out, "problem: %s\n", text);
}

static void tell_all(const unspool_cursor *cursor)
{
	int count = 0;
	const unspool_variables_asked asked = {
		.frames = SIZE_MAX, .variable = tell_one, .problem = tell_problem, .data = &count,
	};
	out = fopen(getenv("VALUES"), "w");
	int ended = unspool_variables(cursor, &asked);
	fprintf(out, "ended %d %d\n", ended, count);
	fclose(out);
	_Exit(0);
}

_Noreturn void tell(void)
{
	unspool_cursor cursor;
	unspool_cursor_here(&cursor);
	tell_all(&cursor);
	_Exit(1);
}

static void handle(int signal, siginfo_t *info, void *context)
{
	(void)signal, (void)info;
	unspool_cursor cursor;
	unspool_cursor_from(&cursor, context);
	tell_all(&cursor);
}

__attribute__((constructor)) static void prepare(void)
{
	struct sigaction action = { .sa_sigaction = handle, .sa_flags = SA_SIGINFO };
	sigaction(SIGSEGV, &action, NULL);
}
