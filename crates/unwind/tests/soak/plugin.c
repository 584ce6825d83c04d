// Versions differ in nothing but the sizes of frames. Linked without start files, whose functions have no tables.
typedef void body(void *);

static volatile int after;

static __attribute__((noinline)) void inner(body *call, void *data) {
	volatile char room[SIZE];
	room[0] = 1;
	call(data);
	after = room[0];
}

void plugin(body *call, void *data) {
	volatile char room[1500 - SIZE];
	room[0] = 1;
	inner(call, data);
	after = room[0];
}
