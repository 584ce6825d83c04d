// Stacks of random shapes, which keep account of themselves: `run` calls, throws, jumps and switches stacks
// until it is told to stop.
#include <alloca.h>
#include <dlfcn.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

// The return addresses of a thread's functions that are running, from `base` on those on this stack.
struct Shadow {
	volatile uint64_t depth, base;
	// Not while stacks are switched.
	volatile uint64_t is_valid;
	void *volatile addresses[4096];
};

namespace {

#define NOINLINE __attribute__((noinline))

struct Thread {
	Shadow *shadow;
	uint64_t random;
	// Where to jump to, of the same stack.
	jmp_buf *target;
	uint64_t target_depth;
	// Where a coroutine comes from, and its stack.
	ucontext_t outside, inside;
	char *stack;
	bool is_inside;
	const char *const *plugins;
};

__thread Thread *self;

uint64_t choose(uint64_t of) {
	self->random = self->random * 6364136223846793005 + 1442695040888963407;
	return (self->random >> 33) % of;
}

// An entry of the shadow stack, as long as a function runs. Popped before the frame is gone.
class Entry {
public:
	__attribute__((always_inline)) Entry(void *address) {
		Shadow *shadow = self->shadow;
		shadow->addresses[shadow->depth] = address;
		shadow->depth = shadow->depth + 1;
	}
	__attribute__((always_inline)) ~Entry() {
		self->shadow->depth = self->shadow->depth - 1;
	}
};
#define ENTER Entry entry(__builtin_return_address(0))

volatile uint64_t sink;

NOINLINE void go_on(int depth);

NOINLINE void work() {
	ENTER;
	uint64_t sum = 0;
	for (uint64_t count = choose(300); count; count--)
		sum = sum * 31 + count;
	sink = sum;
}

NOINLINE void in_small_frame(int depth) {
	ENTER;
	go_on(depth);
	work();
}

NOINLINE void in_large_frame(int depth) {
	ENTER;
	volatile char room[5000];
	room[depth] = 1;
	go_on(depth);
	sink = room[depth];
}

NOINLINE void in_aligned_frame(int depth) {
	ENTER;
	alignas(128) volatile char room[256];
	room[depth] = 1;
	go_on(depth);
	sink = room[depth];
}

NOINLINE void with_alloca(int depth) {
	ENTER;
	volatile char *room = static_cast<char *>(alloca(16 + choose(3000)));
	room[0] = 1;
	go_on(depth);
	sink = room[0];
}

NOINLINE uint64_t with_registers(int depth, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f,
	uint64_t g) {
	ENTER;
	uint64_t all = a * b + c * d;
	go_on(depth);
	return all + (a ^ b ^ c ^ d ^ e ^ f ^ g);
}

int compare(const void *a, const void *b) {
	ENTER;
	return *static_cast<const int *>(a) - *static_cast<const int *>(b);
}

NOINLINE void sorts(int depth) {
	ENTER;
	int numbers[12];
	for (int &number : numbers)
		number = static_cast<int>(choose(100));
	qsort(numbers, 12, sizeof *numbers, compare);
	std::vector<std::string> words;
	for (int number : numbers)
		words.push_back(std::to_string(number) + " is a number that needs memory");
	std::sort(words.begin(), words.end());
	go_on(depth);
}

NOINLINE void prints(int depth) {
	ENTER;
	char text[200];
	timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	sink = static_cast<uint64_t>(snprintf(text, sizeof text, "%d %f %s", depth, 1.5 * depth, "text"));
	free(malloc(choose(5000)));
	go_on(depth);
}

NOINLINE void catches(int depth) {
	ENTER;
	try {
		go_on(depth);
	} catch (const std::runtime_error &) {
		work();
	} catch (int number) {
		if (choose(2) && !self->is_inside)
			throw;
		sink = static_cast<uint64_t>(number);
	}
}

// Where jumps go to as long as a function runs.
class Target {
	jmp_buf *volatile before;
	volatile uint64_t depth_before;

public:
	Target(jmp_buf *target) : before(self->target), depth_before(self->target_depth) {
		self->target_depth = self->shadow->depth;
		self->target = target;
	}
	~Target() {
		self->target = before;
		self->target_depth = depth_before;
	}
};

NOINLINE void is_jumped_to(int depth) {
	ENTER;
	jmp_buf here;
	Target target(&here);
	if (_setjmp(here) == 0)
		go_on(depth);
}

NOINLINE void leaves() {
	ENTER;
	switch (choose(8)) {
	case 0:
		throw std::runtime_error("a message that is longer than what fits into a string");
	case 1:
		throw 42;
	case 2:
		if (self->target) {
			self->shadow->depth = self->target_depth;
			_longjmp(*self->target, 1);
		}
	}
	work();
}

void coroutine() {
	Shadow *shadow = self->shadow;
	shadow->base = shadow->depth;
	self->is_inside = true;
	shadow->is_valid = 1;
	try {
		go_on(12);
	} catch (...) {
	}
	shadow->is_valid = 0;
	self->is_inside = false;
}

NOINLINE void on_another_stack() {
	ENTER;
	if (self->is_inside)
		return;
	Shadow *shadow = self->shadow;
	uint64_t base = shadow->base, depth = shadow->depth;
	Target none(nullptr);
	getcontext(&self->inside);
	self->inside.uc_stack.ss_sp = self->stack;
	self->inside.uc_stack.ss_size = 1 << 18;
	self->inside.uc_link = &self->outside;
	makecontext(&self->inside, coroutine, 0);
	shadow->is_valid = 0;
	swapcontext(&self->outside, &self->inside);
	shadow->depth = depth;
	shadow->base = base;
	shadow->is_valid = 1;
}

extern "C" void go_on_from_plugin(void *depth) {
	ENTER;
	go_on(static_cast<int>(reinterpret_cast<intptr_t>(depth)));
}

NOINLINE void by_plugin(int depth) {
	ENTER;
	void *library = self->plugins ? dlopen(self->plugins[choose(2)], RTLD_NOW) : nullptr;
	if (!library)
		return;
	using Plugin = void (*)(void (*)(void *), void *);
	auto plugin = reinterpret_cast<Plugin>(dlsym(library, "plugin"));
	try {
		// No jump leaves the library open.
		Target none(nullptr);
		plugin(go_on_from_plugin, reinterpret_cast<void *>(static_cast<intptr_t>(depth)));
	} catch (...) {
	}
	dlclose(library);
}

NOINLINE void go_on(int depth) {
	ENTER;
	if (depth <= 0)
		return leaves();
	switch (depth--; choose(15)) {
	case 0: return in_small_frame(depth);
	case 1: return in_large_frame(depth);
	case 2: return in_aligned_frame(depth);
	case 3: return with_alloca(depth);
	case 4: sink = with_registers(depth, 1, 2, sink, 4, sink, 6, 7); break;
	case 5: return sorts(depth);
	case 6: return prints(depth);
	case 7: case 8: return catches(depth);
	case 9: case 10: return is_jumped_to(depth);
	case 11: return on_another_stack();
	case 12: if (self->plugins) return by_plugin(depth);
	// fall through
	default: in_small_frame(depth); work();
	}
}

} // namespace

// Runs until `is_over` says so. `plugins`: two libraries to load and unload, or nothing.
extern "C" void run(Shadow *shadow, uint64_t seed, int (*is_over)(), const char *const *plugins) {
	Thread thread = {};
	thread.shadow = shadow;
	thread.random = seed;
	thread.stack = static_cast<char *>(malloc(1 << 18));
	thread.plugins = plugins;
	self = &thread;
	shadow->is_valid = 1;
	while (!is_over()) {
		try {
			go_on(static_cast<int>(choose(60)));
		} catch (...) {
		}
		shadow->depth = shadow->base = 0;
		thread.target = nullptr;
	}
	shadow->is_valid = 0;
	free(thread.stack);
}
