// A library with a file that is truncated, or replaced, while it runs.
void called(void (*back)(void));

static volatile int count;

#ifndef NAME
#define NAME inner
#define STEP 1
#endif

static __attribute__((noinline)) void NAME(void (*back)(void))
{
	back();
	count += STEP;
}

void called(void (*back)(void))
{
	NAME(back);
	count++;
}
