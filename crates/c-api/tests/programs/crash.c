// Crashes. The argument is the name of one.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define NOT_INLINED __attribute__((noinline, noclone))

static volatile int after;
int *volatile nowhere;
static volatile int zero;

typedef void way(void);

NOT_INLINED static void bad_write(void)
{
	*nowhere = 1;
	after = 1;
}

NOT_INLINED static void division(void)
{
	after = 100;
	after = after / zero;
}

NOT_INLINED static void illegal(void)
{
	__builtin_trap();
}

NOT_INLINED static void breakpoint(void)
{
	__asm__ volatile("int3");
	after = 1;
}

NOT_INLINED static void aborts(void)
{
	abort();
}

NOT_INLINED static void behind_the_end(void)
{
	FILE *file = tmpfile();
	volatile char *map = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fileno(file), 0);
	after = map[0];
}

NOT_INLINED static int recurse(int depth)
{
	volatile char room[100];
	room[0] = (char)depth;
	// Always true, but unknown to the compiler.
	if (zero == 0)
		depth = recurse(depth + 1);
	return depth + room[0];
}

NOT_INLINED static void overflow(void)
{
	after = recurse(1);
}

NOT_INLINED static void bad_call(void)
{
	way *volatile null = NULL;
	null();
	after = 1;
}

// Frame pointer and return address are invalid.
NOT_INLINED static void smashed(void)
{
	uint64_t *frame = __builtin_frame_address(0);
	frame[0] = 0x4141414141414141;
	frame[1] = 0x4242424242424242;
	*nowhere = 1;
	after = 1;
}

static void *waits(void *nothing)
{
	for (;;)
		pause();
	return nothing;
}

// malloc reads through a pointer in a free block. It holds its lock, since there is another thread.
NOT_INLINED static void in_malloc(void)
{
	pthread_t thread;
	pthread_create(&thread, NULL, waits, NULL);
	void **volatile block = malloc(0x800);
	// Otherwise it is merged with memory that was never allocated.
	void *volatile behind = malloc(0x900);
	free(block);
	void *volatile *volatile freed = (void *volatile *)block;
	freed[1] = (void *)0x4141414141414140;
	behind = malloc(0x1000);
	after = behind != NULL;
}

static void *begin_thread(void *run)
{
	pthread_setname_np(pthread_self(), "second\n");
	((way *)run)();
	after = 1;
	return NULL;
}

static void in_thread(way *run)
{
	pthread_t thread;
	pthread_create(&thread, NULL, begin_thread, (void *)run);
	pthread_join(thread, NULL);
}

static void thread(void)
{
	in_thread(bad_write);
}

static void thread_overflow(void)
{
	in_thread(overflow);
}

// All of them at once.
static pthread_barrier_t barrier;

static void at_once(void)
{
	pthread_barrier_wait(&barrier);
	bad_write();
}

static void threads(void)
{
	pthread_t all[4];
	pthread_barrier_init(&barrier, NULL, 4);
	for (int i = 0; i < 4; i++)
		pthread_create(&all[i], NULL, begin_thread, (void *)at_once);
	for (int i = 0; i < 4; i++)
		pthread_join(all[i], NULL);
}

static void on_signal(int signal)
{
	(void)signal;
	(void)!write(STDERR_FILENO, "mine\n", 5);
	_exit(7);
}

static void own_handler(void)
{
	signal(SIGSEGV, on_signal);
	bad_write();
}

// Without a handler stack, handlers have the thread's whole stack.
static void on_stack(int signal)
{
	volatile char room[512 << 10];
	memset((char *)room, signal, sizeof room);
	_exit(room[signal] == signal ? 7 : 8);
}

static void own_handler_on_stack(void)
{
	struct sigaction action = {.sa_handler = on_stack, .sa_flags = SA_ONSTACK};
	sigaction(SIGUSR1, &action, NULL);
	raise(SIGUSR1);
}

// The program's own handler stack stays.
static void loaded_later(void)
{
	stack_t own = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16}, now;
	sigaltstack(&own, NULL);
	if (!dlopen(getenv("LIBRARY"), RTLD_NOW))
		exit(3);
	sigaltstack(NULL, &now);
	if (now.ss_sp != own.ss_sp || now.ss_size != own.ss_size)
		exit(4);
	bad_write();
}

// The report itself faults: the program's header is unreadable.
extern char __ehdr_start[];
static void unreadable(void)
{
	mprotect(__ehdr_start, 4096, PROT_NONE);
	abort();
}

// Handlers also have the program's own stack, with little more room than the kernel's frame needs,
// and an inaccessible page below it.
static void with_small_stack(int flags)
{
	size_t room = (getauxval(AT_MINSIGSTKSZ) + (8 << 10) + 4095) & ~(size_t)4095;
	char *own = mmap(NULL, 4096 + room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mprotect(own, 4096, PROT_NONE);
	stack_t stack = {.ss_sp = own + 4096, .ss_size = room, .ss_flags = flags};
	if (sigaltstack(&stack, NULL))
		exit(3);
	unreadable();
}

static void small_stack(void)
{
	with_small_stack(0);
}

// The kernel clears it when a handler begins (SS_AUTODISARM).
static void forgotten_stack(void)
{
	with_small_stack((int)(1U << 31));
}

static int zero_result;

static void *do_nothing(void *argument)
{
	stack_t stack;
	sigaltstack(NULL, &stack);
	// 1 MiB, and the kernel's part.
	return stack.ss_flags == 0 && stack.ss_size > 1 << 20 ? argument : NULL;
}

// Threads are created and end, and leave nothing mapped.
static void many_threads(void)
{
	for (int i = 0; i < 200; i++) {
		pthread_t thread;
		void *result = NULL;
		if (pthread_create(&thread, NULL, do_nothing, &zero_result))
			exit(3);
		pthread_join(thread, &result);
		if (result != &zero_result)
			exit(4);
	}
	char line[300];
	int count = 0;
	FILE *maps = fopen("/proc/self/maps", "r");
	while (fgets(line, sizeof line, maps))
		count++;
	printf("%d mappings\n", count);
}

static void leaves_by_pthread_exit(void);
static void *exits(void *argument)
{
	leaves_by_pthread_exit();
	return argument;
}

NOT_INLINED static void leaves_by_pthread_exit(void)
{
	pthread_exit(&zero_result);
}

static void pthread_exits(void)
{
	pthread_t thread;
	void *result = NULL;
	pthread_create(&thread, NULL, exits, NULL);
	pthread_join(thread, &result);
	if (result != &zero_result)
		exit(5);
	pthread_create(&thread, NULL, waits, NULL);
	pthread_cancel(thread);
	pthread_join(thread, &result);
	if (result != PTHREAD_CANCELED)
		exit(6);
}

// Standard error is a full pipe; `flags` are its additional flags.
static void fill_stderr(int flags)
{
	int before = fcntl(STDERR_FILENO, F_GETFL);
	fcntl(STDERR_FILENO, F_SETFL, before | O_NONBLOCK);
	while (write(STDERR_FILENO, "-", 1) == 1)
		continue;
	fcntl(STDERR_FILENO, F_SETFL, before | flags);
	puts("full");
	fflush(stdout);
	bad_write();
}

static void full_stderr(void)
{
	fill_stderr(0);
}

static void full_nonblocking_stderr(void)
{
	fill_stderr(O_NONBLOCK);
}

static void timer(void)
{
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGABRT};
	struct itimerspec soon = {.it_value = {.tv_nsec = 1}};
	timer_t timer;

	if (timer_create(CLOCK_MONOTONIC, &event, &timer) || timer_settime(timer, 0, &soon, NULL))
		exit(3);
	waits(NULL);
}

static void queued(void)
{
	sigqueue(getpid(), SIGABRT, (union sigval){.sival_int = 1});
}

static void cut_library(void)
{
	if (truncate(getenv("LIBRARY"), 0))
		exit(4);
}

static void cut_library_and_crash(void)
{
	cut_library();
	bad_write();
	after = 1;
}

NOT_INLINED static void through_library(way *run)
{
	void *library = dlopen(getenv("LIBRARY"), RTLD_NOW);
	void (*called)(way *) = (void (*)(way *))dlsym(library, "called");
	called(run);
	after = 1;
}

static void replace_library_and_crash(void)
{
	const char *other = getenv("OTHER");
	if (other && rename(other, getenv("LIBRARY")))
		exit(4);
	bad_write();
	after = 1;
}

static void replaced(void)
{
	through_library(replace_library_and_crash);
	after = 1;
}

// The library's own code is truncated,
static void cut_innermost(void)
{
	through_library(cut_library);
	after = 1;
}

// or the code that called the crashing function.
static void cut_outer(void)
{
	through_library(cut_library_and_crash);
	after = 1;
}

// The log is a pipe without a reader.
static void pipe_as_log(void)
{
	if (mkfifo(getenv("UNSPOOL_CRASH_LOG"), 0600))
		exit(3);
	bad_write();
}

static void other_folder(void)
{
	if (chdir("/"))
		exit(3);
	bad_write();
}

// A file of the program's own has the number of standard error.
static void as_stderr(int flags)
{
	close(STDERR_FILENO);
	if (open(getenv("OWN_FILE"), O_WRONLY | flags) != STDERR_FILENO)
		exit(3);
	bad_write();
}

static void other_stderr(void)
{
	as_stderr(0);
}

// As in daemons.
static void logged_stderr(void)
{
	as_stderr(O_APPEND);
}

static const struct {
	const char *name;
	way *run;
} ways[] = {
	{"write", bad_write},
	{"division", division},
	{"illegal", illegal},
	{"breakpoint", breakpoint},
	{"abort", aborts},
	{"bus", behind_the_end},
	{"overflow", overflow},
	{"call", bad_call},
	{"smashed", smashed},
	{"malloc", in_malloc},
	{"thread", thread},
	{"thread-overflow", thread_overflow},
	{"threads", threads},
	{"own-handler", own_handler},
	{"own-handler-on-stack", own_handler_on_stack},
	{"loaded-later", loaded_later},
	{"unreadable", unreadable},
	{"small-stack", small_stack},
	{"forgotten-stack", forgotten_stack},
	{"many-threads", many_threads},
	{"pthread-exit", pthread_exits},
	{"full-stderr", full_stderr},
	{"full-nonblocking-stderr", full_nonblocking_stderr},
	{"timer", timer},
	{"queued", queued},
	{"cut-innermost", cut_innermost},
	{"cut-outer", cut_outer},
	{"replaced", replaced},
	{"pipe-as-log", pipe_as_log},
	{"other-folder", other_folder},
	{"other-stderr", other_stderr},
	{"logged-stderr", logged_stderr},
};

int main(int count, char **arguments)
{
	for (size_t i = 0; count > 1 && i < sizeof ways / sizeof *ways; i++) {
		if (strcmp(arguments[1], ways[i].name))
			continue;
		ways[i].run();
		return 0;
	}
	return 2;
}
