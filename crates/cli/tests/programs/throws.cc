// Throws through a C function without an unwind table.
#include <cstdio>

extern "C" int through(int (*function)(int), int value);

__attribute__((noinline)) static int thrower(int value)
{
	throw value + 1;
}

int main()
{
	try {
		through(thrower, 41);
	} catch (int caught) {
		std::printf("caught %d\n", caught);
		return 0;
	}
	return 1;
}
