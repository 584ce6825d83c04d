// Calls functions of another object, and catches an exception that passes through them.
#include <cstdio>

extern "C" long through(int n);

extern "C" void callee(int n)
{
	throw n;
}

int main()
{
	try {
		through(42);
	} catch (int n) {
		std::printf("caught %d\n", n);
		return 0;
	}
	return 1;
}
