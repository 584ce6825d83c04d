// A function in a COMDAT group, of which linkers keep one; and an unused one.
extern "C" void callee(int n);

template <typename T>
[[gnu::noinline]] T passed(T n)
{
	callee(n);
	return n + 1;
}

#ifdef OTHER
extern "C" long other(int n)
{
	return passed(n) + 2;
}
#else
extern "C" long other(int n);

extern "C" long through(int n)
{
	return (n == 0 ? other(n) : passed(n)) + 1;
}
#endif

extern "C" void *NOBODY(int n)
{
	passed(n);
	return reinterpret_cast<void *>(callee);
}
