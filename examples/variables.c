/* The variables of its own functions. cc -O2 -g variables.c $(pkg-config --cflags --libs unspool-variables) */
#include <stdio.h>
#include <unspool_variables.h>

static int print_variable(const unspool_variable *own, void *data)
{
	(void)data;
	printf("%zu %s%s: %s%s: %s", own->frame, own->function, own->inlined ? " (inlined)" : "",
	       own->is_parameter ? "" : "local ", own->name, own->type);
	if (own->value)
		printf(" = %s", own->value);
	else
		printf(" <lost: %s>", own->lost);
	if (own->entry)
		printf(" <called with %s>", own->entry);
	printf("\n");
	return 0;
}

static void print_problem(const char *text, void *data)
{
	(void)data;
	printf("%s\n", text);
}

__attribute__((noinline)) static void print_stack(void)
{
	const unspool_variables_asked asked = {
		.first = 1, /* not of this function */
		.frames = 2,
		.strings = 1,
		.variable = print_variable,
		.problem = print_problem,
	};
	unspool_cursor cursor;

	unspool_cursor_here(&cursor);
	unspool_variables(&cursor, &asked);
}

enum kind { CASH, CARD };

struct item {
	int price;
	const char *name;
};

static inline int discounted(const struct item *item, int percent)
{
	int price = item->name[0] ? item->price * percent / 100 : 0;
	print_stack();
	return price;
}

__attribute__((noinline)) int pay(const struct item *item, enum kind kind, int times)
{
	int sum = kind;
	for (int round = 0; round < times; round++)
		sum += discounted(item, 90);
	return sum;
}

int main(int argc, char **argv)
{
	struct item pot = {50, "teapot"};
	int sum = pay(&pot, CARD, argc);

	printf("%s\n", sum > 0 && argv ? "paid" : "free");
	return 0;
}
