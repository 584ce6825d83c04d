// Inline assembly in a function with a landing pad: the compiler's exception tables must stay.
#include <cstdio>

static int guarded;

struct Guard {
	~Guard() { guarded++; }
};

extern "C" void callee(int n)
{
	throw n;
}

// A debugger inspects the stack from here.
extern "C" [[gnu::noinline]] void noted()
{
	__asm__ volatile("" ::: "memory");
}

extern "C" [[gnu::noinline]] long through(int n)
{
	Guard guard;

	__asm__ volatile(
		"push	%%r12\n\t"
		"push	%%r13\n\t"
		"call	noted\n\t"
		"pop	%%r13\n\t"
		"pop	%%r12"
		:
		:
		: "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory", "cc");
	callee(n);
	return n;
}

int main()
{
	try {
		through(42);
	} catch (int n) {
		std::printf("caught %d, guarded %d\n", n, guarded);
		return 0;
	}
	return 1;
}
