// Ways to call a function from frames, stacks and contexts of many kinds.
#define _GNU_SOURCE
#include <alloca.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <ucontext.h>

typedef void body(void *);

// What follows a call keeps it from being a jump.
static volatile int after;

void frame_of_10_kb(body *call, void *data) {
	volatile char room[10000];
	room[0] = 1;
	call(data);
	after = room[0];
}

void frame_of_100_kb(body *call, void *data) {
	volatile char room[100000];
	room[0] = 1;
	call(data);
	after = room[0];
}

void with_alloca(body *call, void *data, size_t size) {
	volatile char *room = alloca(size);
	room[0] = 1;
	call(data);
	after = room[0];
}

void aligned_to_256(body *call, void *data) {
	_Alignas(256) volatile char room[256];
	room[0] = 1;
	call(data);
	after = room[0];
}

void aligned_with_alloca(body *call, void *data, size_t size) {
	_Alignas(64) volatile char room[64];
	room[0] = 1;
	with_alloca(call, data, size);
	volatile char *more = alloca(size);
	more[0] = 1;
	call(data);
	after = room[0] + more[0];
}

void deep(body *call, void *data, size_t depth) {
	volatile char room[16 + 8 * 3];
	room[0] = 1;
	if (depth == 0)
		call(data);
	else
		deep(call, data, depth - 1);
	after = room[0];
}

static body *handler_call;
static void *handler_data;
static volatile int handled;

static void handle(int signal) {
	(void)signal;
	handler_call(handler_data);
	handled = 1;
}

// Calls from a handler: of a signal that is raised, or of a timer's while this function spins.
int in_handler(body *call, void *data, int alternate, int timer) {
	stack_t stack = {.ss_size = 1 << 18}, before;
	handler_call = call;
	handler_data = data;
	handled = 0;
	if (alternate) {
		stack.ss_sp = malloc(stack.ss_size);
		if (sigaltstack(&stack, &before))
			return 1;
	}
	struct sigaction action = {.sa_handler = handle, .sa_flags = alternate ? SA_ONSTACK : 0};
	sigaction(timer ? SIGVTALRM : SIGUSR2, &action, NULL);
	if (timer) {
		struct itimerval soon = {.it_value = {.tv_usec = 1000}};
		setitimer(ITIMER_VIRTUAL, &soon, NULL);
		while (!handled)
			after++;
	} else {
		raise(SIGUSR2);
	}
	if (alternate) {
		sigaltstack(&before, NULL);
		free(stack.ss_sp);
	}
	return !handled;
}

static __thread ucontext_t outside, inside;
static __thread body *inside_call;
static __thread void *inside_data;

static void run_inside(void) {
	inside_call(inside_data);
	after = 1;
}

// Calls on another stack.
void in_coroutine(body *call, void *data, void *stack, size_t size) {
	inside_call = call;
	inside_data = data;
	getcontext(&inside);
	inside.uc_stack.ss_sp = stack;
	inside.uc_stack.ss_size = size;
	inside.uc_link = &outside;
	makecontext(&inside, run_inside, 0);
	swapcontext(&outside, &inside);
}
