// Works in the C library: qsort calls back, and copies.
#include <stdio.h>
#include <stdlib.h>

static int compare(const void *a, const void *b)
{
	int x = *(const int *)a, y = *(const int *)b;
	return (x > y) - (x < y);
}

__attribute__((noinline)) static int work(int *numbers, int n)
{
	unsigned seed = 1;
	for (int i = 0; i < n; i++) {
		seed = seed * 1103515245 + 12345;
		numbers[i] = (int)(seed >> 8);
	}
	qsort(numbers, (size_t)n, sizeof *numbers, compare);
	return numbers[n / 2];
}

int main(void)
{
	static int numbers[20000];
	long sum = 0;
	for (int i = 0; i < 60; i++)
		sum += work(numbers, 20000);
	printf("%ld\n", sum);
	return 0;
}
