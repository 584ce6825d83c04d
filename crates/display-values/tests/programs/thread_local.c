/* A program with thread-local variables; one of its threads is killed. */
#include <pthread.h>
#include <stdlib.h>

struct pair {
	int first;
	long second;
};

volatile int sink;

__thread char before[3] = "ab";

__attribute__((noinline)) int count(int step)
{
	static __thread int calls = 40;
	static __thread struct pair pair __attribute__((aligned(128))) = { 7, -8 };
	static __thread long zeroes[2];
	calls += step;
	pair.second -= calls;
	zeroes[1] = pair.second * 2;
	sink = calls + before[step & 1];
	if (step == 3)
		abort();
	return calls;
}

static void *thread(void *given)
{
	count(2);
	sink = count(3);
	return given;
}

int main(void)
{
	pthread_t other;
	count(1);
	if (pthread_create(&other, 0, thread, 0) == 0)
		pthread_join(other, 0);
	return sink;
}
