/* A program that is killed with variable-length arrays on its stack. */
#include <stdlib.h>

struct pair {
	int first;
	long second;
};

volatile int sink;

#define KEPT __attribute__((noinline))

KEPT void end(const int *numbers, int count)
{
	sink = numbers[count - 1];
	if (sink)
		abort();
}

static inline int inlined(unsigned char count)
{
	short twice[count * 2];
	for (int index = 0; index < count * 2; index++)
		twice[index] = (short)(index * sink + 100);
	int numbers[count];
	for (int index = 0; index < count; index++)
		numbers[index] = index + 1;
	end(numbers, count);
	return twice[count] + numbers[0];
}

KEPT int several(int count, long more)
{
	typedef int row[count];
	row rows[2];
	const row *pointer = &rows[1];
	int numbers[count], none[count - count];
	char text[more + 6], letters[500 * more];
	struct pair pairs[more];
	volatile double table[count][more + 1];
	long deep[more][2][count];
	volatile int many[count * 10];
	for (int index = 0; index < count; index++) {
		rows[0][index] = -index;
		rows[1][index] = index * 5;
		numbers[index] = index + 1;
		for (long column = 0; column <= more; column++)
			table[index][column] = (double)(index * 10 + column) / 4;
		for (long column = 0; column < more; column++)
			deep[column][0][index] = deep[column][1][index] = index * column;
	}
	for (long index = 0; index < more; index++) {
		pairs[index].first = (int)index;
		pairs[index].second = -index;
	}
	for (int index = 0; index < count * 10; index++)
		many[index] = index;
	for (long index = 0; index < 500 * more; index++)
		letters[index] = 'a';
	for (long index = 0; index < more + 5; index++)
		text[index] = (char)('A' + index);
	text[more + 5] = 0;
	sink = numbers[count - 1];
	int result = inlined((unsigned char)count);
	sink = rows[0][1] + (*pointer)[1] + numbers[0] + text[1] + letters[3] + pairs[0].first + (int)deep[0][1][2];
	sink = (int)(long)&none + (int)table[1][1] + many[2];
	return result;
}

int main(int argc, char **argv)
{
	return several(argc + 4, argc + 2) + (argv != 0);
}
