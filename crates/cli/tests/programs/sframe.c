/* A program that dies three calls deep, one of them through the procedure linkage table. */
#include <stdlib.h>

__attribute__((noinline)) int innermost(volatile int *counts, int at) {
	if (counts[at] == 0)
		abort();
	return counts[at] + 1;
}

static int compare(const void *a, const void *b) {
	volatile int counts[40] = {0};
	return innermost(counts, *(const int *)a + *(const int *)b);
}

__attribute__((noinline)) int sorts(int *numbers) {
	qsort(numbers, 2, sizeof *numbers, compare);
	return numbers[0] + 1;
}

int main(void) {
	int numbers[] = {2, 1};
	return sorts(numbers) + 1;
}
