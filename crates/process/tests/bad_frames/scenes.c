// Bad stacks: what damages a frame, and what stands at the innermost one.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "scenes.h"

#define PAGE 4096ul
#define NON_CANONICAL 0x4141414141414141ul
#define UNMAPPED 0x10000ul

typedef void damage(uint64_t, ...);
extern damage smash, bad_frame_pointer, bad_frame_pointer_no_table, on_stack, overrun, fake_signal,
	wild_stack_pointer, wild_frame_pointer, wild_call, covered_by_another;
extern const char after_smash[], after_middle[];

static enum place place;
static body *whose;

// From here on a fault is one of whoever looks at the stack.
static void stand(void *context) {
	for (int i = 0; i < 3; i++)
		signal((int[]){SIGSEGV, SIGBUS, SIGILL}[i], SIG_DFL);
	whose(context);
	_exit(0);
}

static void handle(int number, siginfo_t *info, void *context) {
	(void)number, (void)info;
	stand(context);
}

// Called by `inner`.
void reached(void) {
	if (place == IN_HANDLER || place == ON_ALTERNATE_STACK)
		raise(SIGUSR1);
	stand(NULL);
}

static void set_handlers(void) {
	struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_NODEFER};
	if (place == ON_ALTERNATE_STACK)
		action.sa_flags |= SA_ONSTACK;
	sigaction(SIGUSR1, &action, NULL);
	// Whoever faults may have no stack.
	action.sa_flags |= SA_ONSTACK;
	stack_t stack = {.ss_size = 1 << 18};
	stack.ss_sp = mmap(NULL, stack.ss_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	sigaltstack(&stack, NULL);
	if (place == AT_FAULT)
		return;
	sigaction(SIGSEGV, &action, NULL);
	sigaction(SIGBUS, &action, NULL);
	sigaction(SIGILL, &action, NULL);
}

static uint64_t map(size_t pages, int protection) {
	return (uint64_t)mmap(NULL, pages * PAGE, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

// The end of some pages of a stack, behind which there are none, or such.
static uint64_t cut(int protection) {
	uint64_t at = map(20, PROT_READ | PROT_WRITE), end = at + 16 * PAGE;
	if (protection < 0)
		munmap((void *)end, 4 * PAGE);
	else
		mprotect((void *)end, 4 * PAGE, protection);
	return end;
}

// Where the kernel has handlers return to.
static uint64_t trampoline(void) {
	struct { void *handler; unsigned long flags; void *restorer; unsigned long mask; } action;
	signal(SIGUSR2, _exit);
	syscall(SYS_rt_sigaction, SIGUSR2, NULL, &action, 8);
	return (uint64_t)action.restorer;
}

static uint64_t unloaded(void) {
	// A part of libc6 that no program needs.
	void *library = dlopen("libBrokenLocale.so.1", RTLD_LAZY);
	uint64_t at = library ? (uint64_t)dlsym(library, "__ctype_get_mb_cur_max") : 0;
	if (!at || dlclose(library))
		_exit(99);
	return at + 5;
}

// The object that has an address: there, then where it ends.
static int find_end(struct dl_phdr_info *object, size_t size, void *address) {
	uint64_t *at = address, end = 0, is_inside = 0;
	(void)size;
	for (int i = 0; i < object->dlpi_phnum; i++) {
		uint64_t start = object->dlpi_addr + object->dlpi_phdr[i].p_vaddr;
		uint64_t behind = start + object->dlpi_phdr[i].p_memsz;
		if (object->dlpi_phdr[i].p_type != PT_LOAD)
			continue;
		is_inside |= start <= *at && *at < behind;
		end = behind > end ? behind : end;
	}
	if (is_inside)
		*at = end;
	return is_inside;
}

static uint64_t end_of_module(void) {
	uint64_t at = (uint64_t)handle;
	dl_iterate_phdr(find_end, &at);
	return at;
}

static uint64_t data[512] = {NON_CANONICAL, UNMAPPED};

struct lie { const char *name; damage *function; };
extern const struct lie __start_lies[], __stop_lies[];

// Everything else writes to the stacks of its callers, none of which it returns to.
static void damage_something(const char *name) {
	volatile uint64_t here[64] = {0};
	uint64_t at = (uint64_t)here, heap = map(1, PROT_READ | PROT_WRITE), code = (uint64_t)after_smash;
	uint64_t *record = (uint64_t *)heap;
#define SCENE(is) else if (!strcmp(name, #is))
	if (0) {}
	// A return address that is none.
	SCENE(ra_unmapped) smash(0, UNMAPPED);
	SCENE(ra_zero) smash(0, 0);
	SCENE(ra_one) smash(0, 1);
	SCENE(ra_highest) smash(0, -1);
	SCENE(ra_non_canonical) smash(0, NON_CANONICAL);
	SCENE(ra_beyond_user_space) smash(0, 0xffffffffff600000);
	SCENE(ra_page_without_access) smash(0, map(1, PROT_NONE));
	SCENE(ra_in_data) smash(0, (uint64_t)data);
	SCENE(ra_on_heap) smash(0, heap);
	SCENE(ra_on_stack) smash(0, at);
	SCENE(ra_behind_module) smash(0, (end_of_module() | (PAGE - 1)) + 1);
	SCENE(ra_in_unloaded_module) smash(0, unloaded());
	SCENE(ra_at_end_of_module) smash(0, end_of_module());
	// Stack and frame pointers that are none. `smash` takes its frame from the frame pointer.
	SCENE(fp_unmapped) smash(UNMAPPED, code);
	SCENE(fp_zero) smash(0, code);
	SCENE(fp_highest) smash(-1, code);
	SCENE(fp_wraps) smash(-16, code);
	SCENE(fp_non_canonical) smash(NON_CANONICAL, code);
	SCENE(fp_misaligned) smash(at + 3, code);
	SCENE(fp_in_code) smash((uint64_t)reached, code);
	SCENE(fp_in_page_without_access) smash(map(1, PROT_NONE), code);
	SCENE(fp_at_end_of_page) smash(cut(-1) - 8, code);
	SCENE(fp_across_end_of_page) smash(cut(-1) - 12, code);
	SCENE(fp_below_stack) smash(at - 0x8000, code);
	SCENE(fp_bad_at_once) bad_frame_pointer(NON_CANONICAL);
	SCENE(fp_bad_at_once_no_table) bad_frame_pointer_no_table(NON_CANONICAL);
	SCENE(fp_unmapped_no_table) bad_frame_pointer_no_table(UNMAPPED);
	SCENE(no_table_leads_to_data) {
		here[1] = (uint64_t)data;
		bad_frame_pointer_no_table(at);
	}
	// Circles.
	SCENE(own_caller) {
		record[0] = heap, record[1] = code;
		smash(heap, code);
	}
	SCENE(two_callers) {
		record[0] = heap + 32, record[1] = code, record[4] = heap, record[5] = code;
		smash(heap, code);
	}
	SCENE(circle_on_stack) {
		here[0] = at + 32, here[1] = code, here[4] = at, here[5] = code;
		smash(at, code);
	}
	SCENE(circle_through_signal) fake_signal((uint64_t)after_middle, 0, trampoline());
	SCENE(signal_leads_nowhere) fake_signal(UNMAPPED, UNMAPPED, trampoline());
	SCENE(signal_leads_to_bad_stack) fake_signal((uint64_t)after_middle, NON_CANONICAL, trampoline());
	// Stacks that are cut.
	SCENE(stack_ends) on_stack(cut(-1));
	SCENE(stack_without_access_above) on_stack(cut(PROT_NONE));
	SCENE(overrun_by_letters) overrun(NON_CANONICAL, 64);
	SCENE(overrun_by_zeros) overrun(0, 64);
	SCENE(covered_by_another) covered_by_another(0);
	// The innermost frame.
	SCENE(wild_pc) wild_call(UNMAPPED);
	SCENE(wild_pc_zero) wild_call(0);
	SCENE(wild_pc_in_data) wild_call((uint64_t)data);
	SCENE(wild_pc_non_canonical) wild_call(NON_CANONICAL);
	SCENE(wild_sp) wild_stack_pointer(NON_CANONICAL);
	SCENE(wild_sp_unmapped) wild_stack_pointer(UNMAPPED);
	SCENE(wild_sp_at_end) wild_stack_pointer(cut(PROT_NONE));
	SCENE(wild_fp) wild_frame_pointer(NON_CANONICAL);
	SCENE(wild_fp_unmapped) wild_frame_pointer(UNMAPPED);
#undef SCENE
}

void run_scene(const char *name, enum place where, body *stands) {
	place = where;
	whose = stands;
	set_handlers();
	for (const struct lie *lie = __start_lies; lie < __stop_lies; lie++)
		if (!strcmp(name, lie->name))
			lie->function(NON_CANONICAL);
	damage_something(name);
	_exit(99);
}
