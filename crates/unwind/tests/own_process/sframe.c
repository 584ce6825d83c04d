// Frames of all kinds that SFrame can tell, and one that its first two versions cannot.
typedef void body(void *);

static volatile int after;

static __attribute__((noinline)) void inner(body *call, void *data) {
	volatile char room[200];
	room[0] = 1;
	call(data);
	after = room[0];
}

// The CFA is an offset from the frame pointer.
static __attribute__((noinline)) void by_frame_pointer(body *call, void *data, int size) {
	volatile char room[size];
	room[0] = 1;
	inner(call, data);
	after = room[0];
}

// The CFA is what is on the stack.
static __attribute__((noinline)) void aligned(body *call, void *data, int size) {
	volatile char room[size];
	volatile _Alignas(64) char aligned[64];
	room[0] = aligned[0] = 1;
	inner(call, data);
	after = room[0] + aligned[0];
}

void descend(body *call, void *data, int is_aligned) {
	volatile char room[1000];
	room[0] = 1;
	(is_aligned ? aligned : by_frame_pointer)(call, data, 100 + is_aligned);
	after = room[0];
}
