/* Busy in `inner`, called by `middle`, `outer` and `main`. With another ROOM, it has other rows at the same addresses. */
volatile unsigned long sum;

__attribute__((noinline)) void inner(void)
{
	volatile char room[ROOM];
	for (unsigned n = 0; n < 1000000; n++) {
		room[n % ROOM] = 1;
		sum += n;
	}
}

__attribute__((noinline)) void middle(void)
{
	volatile char room[ROOM];
	room[0] = 1;
	inner();
	room[1] = 1;
}

__attribute__((noinline)) void outer(void)
{
	volatile char room[ROOM];
	room[0] = 1;
	middle();
	room[1] = 1;
}

int main(void)
{
	for (;;)
		outer();
}
