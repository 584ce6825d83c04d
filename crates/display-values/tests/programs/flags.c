/* A program, in C and in C++, that is killed with various enumerations on its stack, with various values. */
#include <stdlib.h>

enum holes { HOLES_A = 1, HOLES_B = 2, HOLES_C = 4, HOLES_G = 64 };
enum with_zero { ZERO, WITH_ZERO_A = 1, WITH_ZERO_B = 2 };
enum several_bits { SEVERAL_A = 1, SEVERAL_MASK = 6, SEVERAL_D = 8 };
enum sums { SUMS_A = 1, SUMS_B = 2, SUMS_AB = 3, SUMS_D = 8 };
enum overlapping { OVERLAPPING_A = 3, OVERLAPPING_B = 6 };
enum negative { NEGATIVE_A = -1, NEGATIVE_B = 1, NEGATIVE_C = 2 };
enum counted { COUNTED_0, COUNTED_1, COUNTED_2, COUNTED_3 };
enum one { ONE = 1 };
enum nothing { NOTHING };
enum twice { TWICE_A = 1, TWICE_AGAIN = 1, TWICE_B = 2, TWICE_NONE = 0, TWICE_ZERO = 0 };
enum backwards { BACKWARDS_C = 4, BACKWARDS_B = 2, BACKWARDS_A = 1 };
enum highest { HIGHEST_A = 1, HIGHEST = 0x80000000u };
enum lowest { LOWEST_A = 1, LOWEST = -2147483647 - 1 };
enum __attribute__((packed)) small { SMALL_A = 1, SMALL_H = 128 };
enum __attribute__((packed)) small_negative { SMALL_NEGATIVE_A = 1, SMALL_NEGATIVE = -128 };
enum large { LARGE_A = 1, LARGE = 1L << 40 };
enum largest { LARGEST_A = 1, LARGEST = 1UL << 63 };
enum large_number { LARGE_NUMBER_A = 3, LARGE_NUMBER = 1L << 40 };

#define COUNT 32

static const long numbers[COUNT] = {
	0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 16, 17, 32, 64, 71, 96, 127, 128, 129, 255, 256, -1, -2, -128,
	0x7fffffff, 0x80000000, 0x80000001, 1L << 40, (1L << 40) + 1, (long)(1UL << 63), (long)((1UL << 63) + 1),
};

struct fields {
	unsigned before : 3;
	enum holes holes : 8;
	enum with_zero with_zero : 3;
	enum several_bits several_bits : 4;
	enum negative negative : 4;
	enum counted counted : 5;
	enum highest highest : 32;
};

#define KEPT __attribute__((noinline))

#define ALL(name) \
	enum name of_##name[COUNT]; \
	for (int index = 0; index < COUNT; index++) \
		of_##name[index] = (enum name)numbers[index];

KEPT void end(enum holes holes, enum with_zero with_zero, enum counted counted, enum small small)
{
	if (holes + with_zero + counted + small != 0)
		abort();
}

KEPT void fill(void)
{
	ALL(holes)
	ALL(with_zero)
	ALL(several_bits)
	ALL(sums)
	ALL(overlapping)
	ALL(negative)
	ALL(counted)
	ALL(one)
	ALL(nothing)
	ALL(twice)
	ALL(backwards)
	ALL(highest)
	ALL(lowest)
	ALL(small)
	ALL(small_negative)
	ALL(large)
	ALL(largest)
	ALL(large_number)
	struct fields fields[16];
	for (int index = 0; index < 16; index++) {
		fields[index].before = 5;
		fields[index].holes = (enum holes)numbers[index + 4];
		fields[index].with_zero = (enum with_zero)(index & 7);
		fields[index].several_bits = (enum several_bits)index;
		fields[index].negative = (enum negative)(index - 8);
		fields[index].counted = (enum counted)index;
		fields[index].highest = (enum highest)numbers[index + 16];
	}
	end((enum holes)73, (enum with_zero)3, (enum counted)9, (enum small)129);
}

int main(void)
{
	fill();
	return 0;
}
