// The promises of unspool.h, checked by a program with a known stack.
#define _GNU_SOURCE
#include <errno.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unspool.h>

#define CHECK(that)                                                                                \
	do {                                                                                           \
		if (!(that)) {                                                                             \
			fprintf(stderr, "line %d: not %s\n", __LINE__, #that);                                 \
			exit(1);                                                                               \
		}                                                                                          \
	} while (0)

// Nothing allocates in a handler.
static volatile int in_handler;
static volatile int leaves_by_resume;
extern void *__libc_malloc(size_t);
void *malloc(size_t size)
{
	if (in_handler)
		abort();
	return __libc_malloc(size);
}

static volatile int after;

#define MOST 300

__attribute__((noinline)) static void compare(void)
{
	void *ours[MOST], *theirs[MOST];
	unspool_walk walk;
	size_t count = unspool_backtrace(ours, MOST, &walk);
	size_t expected = (size_t)backtrace(theirs, MOST);

	CHECK(count == expected && walk.frames == count);
	CHECK(walk.guesses == 0 && walk.end == UNSPOOL_OUTERMOST);
	// The first is behind this function's own calls; these are two different addresses.
	CHECK((char *)ours[0] < (char *)theirs[0] && (char *)theirs[0] < (char *)ours[0] + 200);
	CHECK(memcmp(ours + 1, theirs + 1, (count - 1) * sizeof *ours) == 0);
	CHECK(unspool_backtrace(ours, MOST, NULL) == count);
	// Less room.
	CHECK(unspool_backtrace(ours, 2, &walk) == 2 && walk.end == UNSPOOL_LIMIT);
	CHECK(ours[1] == theirs[1]);
	CHECK(unspool_backtrace(ours, 0, &walk) == 0 && walk.end == UNSPOOL_LIMIT);
	CHECK(unspool_backtrace(NULL, 0, NULL) == 0);
	// No room at all.
	for (int i = 0; i < 3; i++) {
		walk.end = UNSPOOL_NOT_ENDED;
		CHECK(unspool_backtrace(i ? ours : NULL, i == 1 ? SIZE_MAX : PTRDIFF_MAX / 8 + 1, &walk) == 0);
		CHECK(walk.frames == 0 && walk.end == UNSPOOL_LIMIT);
	}

	unspool_cursor cursor;
	unspool_cursor_here(&cursor);
	CHECK(unspool_evidence_of(&cursor) == UNSPOOL_GIVEN);
	uint64_t frame, cfa, rsp;
	size_t at = 0;
	CHECK(unspool_get_register(&cursor, UNSPOOL_RAX, &frame) == -1);
	CHECK(unspool_get_register(&cursor, 17, &frame) == -1);
	CHECK(unspool_get_register(&cursor, UNSPOOL_RSP, NULL) == 0);
	CHECK(unspool_get_cfa(&cursor, NULL) == 0);
	CHECK(unspool_get_register(&cursor, -1, &frame) == -1);
	for (;;) {
		CHECK(unspool_end_of(&cursor) == UNSPOOL_NOT_ENDED);
		CHECK(unspool_is_return_address(&cursor) && !unspool_is_signal_frame(&cursor));
		if (at > 0) {
			CHECK(unspool_address(&cursor) == theirs[at]);
			CHECK(unspool_evidence_of(&cursor) == UNSPOOL_TABLE);
			// A caller's stack pointer is at the end of the callee's frame.
			CHECK(unspool_get_register(&cursor, UNSPOOL_RSP, &rsp) == 0 && rsp == cfa);
		}
		if (unspool_get_cfa(&cursor, &cfa))
			cfa = 0;
		at++;
		if (!unspool_step(&cursor))
			break;
	}
	CHECK(at == count);
	CHECK(unspool_end_of(&cursor) == UNSPOOL_OUTERMOST);
	CHECK(unspool_address(&cursor) == theirs[count - 1]);
}

__attribute__((noinline)) static void descend(int depth)
{
	volatile char room[40];
	room[0] = 1;
	if (depth)
		descend(depth - 1);
	else
		compare();
	after = room[0];
}

static void *in_thread(void *prepares)
{
	if (prepares)
		CHECK(unspool_prepare_thread() == 0);
	descend(100);
	descend(100);
	descend(3);
	return NULL;
}

// A function that has saved rbx, with a known value of its caller's.
#define MARK 0x1234567890abcdef
#define CHANGED 0x0fedcba987654321

__attribute__((noinline)) static void change_rbx(void)
{
	unspool_cursor cursor;
	uint64_t value = 0, *where = NULL;
	int place;

	unspool_cursor_here(&cursor);
	do {
		CHECK(unspool_step(&cursor));
		CHECK(unspool_get_register(&cursor, UNSPOOL_RBX, &value) == 0);
	} while (value != MARK);
	place = unspool_save_location(&cursor, UNSPOOL_RBX, (void **)&where);
	CHECK(place == UNSPOOL_IN_MEMORY && *where == MARK);
	CHECK(unspool_set_register(&cursor, UNSPOOL_RBX, CHANGED) == 0);
	CHECK(*where == CHANGED);
	CHECK(unspool_get_register(&cursor, UNSPOOL_RBX, &value) == 0 && value == CHANGED);
	CHECK(unspool_set_register(&cursor, UNSPOOL_RSP, 0) == -1);
	CHECK(unspool_set_register(&cursor, UNSPOOL_RAX, 0) == -1);
	after = 1;
}

// Has another value in rbx, and has saved its caller's.
__attribute__((noinline)) static void uses_rbx(void)
{
	__asm__ volatile("xor %%ebx, %%ebx" ::: "rbx");
	change_rbx();
	__asm__ volatile("xor %%ebx, %%ebx" ::: "rbx");
}

static void preserved_registers(void)
{
	uint64_t value = MARK;
	__asm__ volatile("mov %0, %%rbx\n\t"
	                 "sub $128, %%rsp\n\t" // the red zone
	                 "mov %%rsp, %%r12\n\t"
	                 "and $-16, %%rsp\n\t"
	                 "call *%1\n\t"
	                 "mov %%r12, %%rsp\n\t"
	                 "add $128, %%rsp\n\t"
	                 "mov %%rbx, %0"
	                 : "+r"(value)
	                 : "r"(uses_rbx)
	                 : "rbx", "r12", "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11",
	                   "memory", "cc");
	CHECK(value == CHANGED);
}

// Leaves functions that have changed their callers' registers.
__attribute__((noinline, noclone)) static uint64_t leaves(int frames)
{
	unspool_cursor cursor;
	uint64_t value = 0;
	__asm__ volatile("xor %%ebx, %%ebx; xor %%r12d, %%r12d; xor %%r13d, %%r13d; xor %%r14d, %%r14d;"
	                 "xor %%r15d, %%r15d" ::: "rbx", "r12", "r13", "r14", "r15");
	if (frames > 0) {
		value = leaves(frames - 1);
		after = 1;
		return value;
	}
	unspool_cursor_here(&cursor);
	while (value != MARK) {
		CHECK(unspool_step(&cursor));
		CHECK(unspool_get_register(&cursor, UNSPOOL_R12, &value) == 0);
	}
	unspool_resume(&cursor, value + 1);
	return 0;
}

static void resumes(void)
{
	uint64_t value = MARK, result;
	int frames = 3;
	void *function = (void *)leaves;
	__asm__ volatile("mov %1, %%r12\n\t"
	                 "mov %%rsp, %%r14\n\t"
	                 "sub $128, %%rsp\n\t" // the red zone
	                 "and $-16, %%rsp\n\t"
	                 "call *%3\n\t"
	                 "mov %%r14, %%rsp\n\t"
	                 "mov %%r12, %1"
	                 : "=a"(result), "+m"(value), "+D"(frames), "+S"(function)
	                 :
	                 : "r12", "r14", "rcx", "rdx", "r8", "r9", "r10", "r11", "memory", "cc");
	CHECK(value == MARK && result == MARK + 1);
}

static void *volatile interrupted;
static volatile size_t frames;

static void on_illegal(int signal, siginfo_t *info, void *argument)
{
	ucontext_t *context = argument;
	static const int numbers[17] = {REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI,
	                                REG_RBP, REG_RSP, REG_R8,  REG_R9,  REG_R10, REG_R11,
	                                REG_R12, REG_R13, REG_R14, REG_R15, REG_RIP};
	void *addresses[MOST], *here[MOST];
	unspool_walk walk;
	unspool_cursor cursor, copy;
	uint64_t value;

	(void)signal;
	(void)info;
	in_handler = 1;
	errno = 77;
	size_t count = unspool_backtrace_from(argument, addresses, MOST, &walk);
	CHECK(errno == 77);
	CHECK(walk.end == UNSPOOL_OUTERMOST && walk.guesses == 0);
	interrupted = addresses[0];
	frames = count;

	unspool_cursor_from(&cursor, argument);
	CHECK(!unspool_is_return_address(&cursor));
	for (int i = 0; i < 17; i++) {
		void *where;
		CHECK(unspool_get_register(&cursor, i, &value) == 0);
		CHECK(value == (uint64_t)context->uc_mcontext.gregs[numbers[i]]);
		CHECK(unspool_save_location(&cursor, i, &where) == UNSPOOL_IN_MEMORY);
		CHECK(where == &context->uc_mcontext.gregs[numbers[i]]);
	}
	CHECK(unspool_resume(&cursor, 0) == -1);
	copy = cursor;
	for (size_t i = 0; i < count; i++) {
		CHECK(unspool_address(&copy) == addresses[i]);
		CHECK(unspool_step(&copy) == (i + 1 < count));
	}

	// The same from here, through the signal frame.
	size_t all = unspool_backtrace(here, MOST, &walk);
	CHECK(walk.end == UNSPOOL_OUTERMOST && all > count + 1);
	CHECK(memcmp(here + all - count, addresses, count * sizeof *here) == 0);
	unspool_cursor_here(&copy);
	for (size_t i = 0; i + 1 < all - count; i++) {
		CHECK(!unspool_is_signal_frame(&copy));
		CHECK(unspool_step(&copy));
	}
	CHECK(unspool_is_signal_frame(&copy));
	unspool_cursor trampoline = copy;
	CHECK(unspool_step(&copy));
	CHECK(!unspool_is_return_address(&copy));
	CHECK(unspool_address(&copy) == addresses[0]);
	for (int i = 0; i < 17; i++) {
		CHECK(unspool_get_register(&copy, i, &value) == 0);
		CHECK(value == (uint64_t)context->uc_mcontext.gregs[numbers[i]]);
	}

	// It continues behind the two bytes of ud2, with another rax.
	CHECK(unspool_set_register(&cursor, UNSPOOL_RIP, (uint64_t)addresses[0] + 2) == 0);
	CHECK(unspool_set_register(&copy, UNSPOOL_RAX, 42) == 0);
	in_handler = 0;
	// Not there, but in the handler's return frame: as if the handler had returned.
	CHECK(unspool_resume(&copy, 0) == -1);
	if (leaves_by_resume)
		CHECK(unspool_resume(&trampoline, 0) && "does not return");
	CHECK(!leaves_by_resume);
}

__attribute__((noinline)) static uint64_t illegal(void)
{
	uint64_t value;
	__asm__ volatile("mov $7, %%eax; .globl at_ud2; at_ud2: ud2" : "=a"(value));
	return value;
}

extern char at_ud2[];

static void in_handlers(int flags)
{
	struct sigaction action = {.sa_sigaction = on_illegal, .sa_flags = SA_SIGINFO | flags};
	sigaction(SIGILL, &action, NULL);
	for (leaves_by_resume = 0; leaves_by_resume < 2; leaves_by_resume++) {
		CHECK(illegal() == 42);
		CHECK(interrupted == at_ud2);
		CHECK(frames >= 4);
	}
	// Mask and stack are those before the signal.
	sigset_t mask;
	stack_t stack;
	CHECK(sigprocmask(SIG_SETMASK, NULL, &mask) == 0 && !sigismember(&mask, SIGILL));
	CHECK(sigaltstack(NULL, &stack) == 0 && !(stack.ss_flags & SS_ONSTACK));
}

// At an address outside of code, the caller's registers are the callee's, except two.
static void on_bad_call(int signal, siginfo_t *info, void *argument)
{
	ucontext_t *context = argument;
	greg_t *registers = context->uc_mcontext.gregs;
	unspool_cursor cursor;
	void *where;
	uint64_t value;

	(void)signal;
	(void)info;
	unspool_cursor_from(&cursor, argument);
	CHECK(unspool_address(&cursor) == NULL);
	CHECK(unspool_step(&cursor));
	CHECK(unspool_evidence_of(&cursor) == UNSPOOL_BAD_CALL);
	CHECK(unspool_save_location(&cursor, UNSPOOL_RIP, &where) == UNSPOOL_IN_MEMORY);
	CHECK(where == (void *)registers[REG_RSP]);
	CHECK(unspool_save_location(&cursor, UNSPOOL_RSP, &where) == UNSPOOL_COMPUTED);
	CHECK(unspool_get_register(&cursor, UNSPOOL_RSP, &value) == 0);
	CHECK(value == (uint64_t)registers[REG_RSP] + 8);
	CHECK(unspool_save_location(&cursor, UNSPOOL_R12, &where) == UNSPOOL_IN_MEMORY);
	CHECK(where == &registers[REG_R12]);
	// Returns from it.
	registers[REG_RIP] = (greg_t)unspool_address(&cursor);
	registers[REG_RSP] = (greg_t)value;
}

static void bad_call(void)
{
	struct sigaction action = {.sa_sigaction = on_bad_call, .sa_flags = SA_SIGINFO};
	void (*volatile null)(void) = NULL;
	sigaction(SIGSEGV, &action, NULL);
	null();
	signal(SIGSEGV, SIG_DFL);
}

// The stack use, including a handler's frame, of functions that reach new code.
static char painted[1 << 18];
static ucontext_t outside, inside;
static unspool_cursor cursor_of_handler;

static void on_user_signal(int signal, siginfo_t *info, void *argument)
{
	void *addresses[MOST];
	(void)signal;
	(void)info;
	unspool_backtrace_from(argument, addresses, MOST, NULL);
	unspool_cursor_from(&cursor_of_handler, argument);
	while (unspool_step(&cursor_of_handler))
		continue;
}

static void run_inside(void)
{
	raise(SIGUSR1);
	after = 1;
}

static size_t touched(void)
{
	size_t untouched = 0;
	while (untouched < sizeof painted && painted[untouched] == 0x5a)
		untouched++;
	return sizeof painted - untouched;
}

static void stack_use(void)
{
	struct sigaction action = {.sa_sigaction = on_user_signal, .sa_flags = SA_SIGINFO};
	sigaction(SIGUSR1, &action, NULL);
	memset(painted, 0x5a, sizeof painted);
	getcontext(&inside);
	inside.uc_stack.ss_sp = painted;
	inside.uc_stack.ss_size = sizeof painted;
	inside.uc_link = &outside;
	makecontext(&inside, run_inside, 0);
	swapcontext(&outside, &inside);
	// The header's limit, 2.4 KiB of addresses, and the kernel's frame.
	CHECK(touched() < (40 << 10) + 2400 + 4096);
	CHECK(touched() > 4096);
}

// The bytes of mapped address space.
static long mapped(void)
{
	FILE *file = fopen("/proc/self/statm", "r");
	long pages;

	CHECK(file && fscanf(file, "%ld", &pages) == 1);
	fclose(file);
	return pages * 4096;
}

static void rules(void)
{
	const size_t wrong[] = {0, 1, 32 << 10, 65537, 3 << 20, 128 << 20, SIZE_MAX};
	long before;

	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		CHECK(unspool_resize_rules(wrong[i]) == EINVAL);
	compare();
	before = mapped();
	// Twice: the second time allocates nothing new.
	for (int i = 0; i < 2; i++) {
		for (size_t size = 64 << 10; size <= 64 << 20; size *= 2) {
			CHECK(unspool_resize_rules(size) == 0);
			compare();
		}
		// There was 1 MiB. The owners of rules take 1 %; one more page is in front.
		CHECK(mapped() - before >= (127 << 20) - (1 << 20));
		CHECK(mapped() - before < 129 << 20);
	}
	CHECK(unspool_resize_rules(1 << 20) == 0);
}

static void modules(void)
{
	unspool_module module;
	CHECK(unspool_module_of((void *)illegal, &module) == 0);
	CHECK((char *)module.start <= at_ud2 && at_ud2 < (char *)module.end);
	CHECK(module.build_id_length == 0 || module.build_id_length == 20);
	CHECK(module.bias % 4096 == 0);
	CHECK(unspool_module_of((void *)illegal, NULL) == 0);
	CHECK(unspool_module_of(NULL, &module) == -1);
	CHECK(unspool_module_of((void *)16, &module) == -1);
	CHECK(unspool_module_of(&module, &module) == -1);
}

static void texts(void)
{
	CHECK(strcmp(unspool_version(), UNSPOOL_VERSION) == 0);
	for (int i = UNSPOOL_NOT_ENDED; i <= UNSPOOL_NO_CALLER; i++)
		CHECK(strlen(unspool_end_text(i)) > 1);
	for (int i = UNSPOOL_GIVEN; i <= UNSPOOL_FRAME_POINTER; i++)
		CHECK(strlen(unspool_evidence_text(i)) > 1);
	CHECK(strcmp(unspool_end_text(UNSPOOL_NO_CALLER + 1), "?") == 0);
	CHECK(strcmp(unspool_end_text(-1), "?") == 0);
	CHECK(strcmp(unspool_evidence_text(UNSPOOL_SYNTHESIZED + 1), "?") == 0);
}

int main(void)
{
	static char room[1 << 16];
	stack_t stack = {.ss_sp = room, .ss_size = sizeof room};
	void *first[1];
	pthread_t thread;

	backtrace(first, 1); // loads a library
	CHECK(sigaltstack(&stack, NULL) == 0);
	stack_use();
	for (int prepared = 0; prepared < 2; prepared++) {
		if (prepared) {
			CHECK(unspool_prepare() >= 0);
			CHECK(unspool_prepare_thread() == 0);
			CHECK(unspool_prepare_thread() == 0);
		}
		descend(0);
		descend(100);
		descend(100);
		preserved_registers();
		resumes();
		bad_call();
		in_handlers(0);
		in_handlers(SA_ONSTACK);
		CHECK(pthread_create(&thread, NULL, in_thread, prepared ? &thread : NULL) == 0);
		CHECK(pthread_join(thread, NULL) == 0);
	}
	modules();
	texts();
	rules();
	puts("all is well");
	return 0;
}
