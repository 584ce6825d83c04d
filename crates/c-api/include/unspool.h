/*
 * unspool.h - the stack of the own thread: return addresses, registers, and how they were found.
 *
 * Linux on x86-64, with glibc 2.35 or later. C99 and C++. Link with -lunspool (pkg-config unspool).
 *
 * A stack is walked by the unwind tables that compilers leave in every program and library
 * (.eh_frame, or .sframe where that says nothing), so neither frame pointers nor debug information
 * are needed. Every frame says how it was found, and every walk why it ended. Memory that a damaged
 * stack or table leads to is not read before the kernel was asked whether it is there: a walk does
 * not crash.
 *
 *                              async-    allocates  system calls           locks
 *                              signal-
 *                              safe
 *   unspool_version              yes       no        no                     no
 *   unspool_prepare              no        no (1)    yes                    the loader's
 *   unspool_resize_rules         no        no (1)    mmap                   no
 *   unspool_prepare_thread       no        no (1)    yes                    the C library's
 *   unspool_backtrace            yes       no        see (2)                no
 *   unspool_backtrace_from       yes       no        see (2)                no
 *   unspool_cursor_here          yes       no        no                     no
 *   unspool_cursor_from          yes       no        no                     no
 *   unspool_step                 yes       no        see (2)                no
 *   unspool_get_cfa              yes       no        see (2)                no
 *   unspool_is_signal_frame      yes       no        see (2)                no
 *   all others                   yes       no        no                     no
 *
 *   (1) It maps memory of its own with mmap. malloc is called only where the C library does so for
 *       itself: to note that a thread is to call something when it ends, to find out where a thread's
 *       stack is, and, with UNSPOOL_STATS=1, to note that the process is.
 *   (2) None for memory of the thread's own stack, once the thread has been prepared and as long as the
 *       caller runs on that stack, and none for segments of loaded modules. Otherwise one rt_sigprocmask,
 *       which changes nothing, for each page that is read; the last eight pages are remembered during a
 *       walk or step. errno is not touched.
 *
 * All functions may be called by any number of threads at once, each about its own stack. They use up
 * to 20 KiB of stack, where a walk comes to code that no walk has met before: an alternate signal
 * stack should have 32 KiB (SIGSTKSZ is too small). docs/api.md has the bytes of each function.
 *
 * Pointers must not be NULL, but for those of which it is said what NULL does.
 */
#ifndef UNSPOOL_H
#define UNSPOOL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header. */
#define UNSPOOL_VERSION "0.1.0"

/* The version of the library that runs, as "0.1.0". */
const char *unspool_version(void);

/* How a frame was found from the frame further in. */
enum unspool_evidence {
	UNSPOOL_GIVEN = 0,             /* it is the frame that the walk began with */
	UNSPOOL_TABLE = 1,             /* by an unwind table: this alone is proof */
	UNSPOOL_SIGNAL_TRAMPOLINE = 2, /* guessed: code that returns from signals, by its bytes */
	UNSPOOL_BAD_CALL = 3,          /* guessed: the frame is at no code, and was called */
	UNSPOOL_FRAME_POINTER = 4,     /* guessed: by the frame pointer, where no table says more */
	UNSPOOL_SYNTHESIZED = 5        /* by rows made of the code, where no table says more */
};

/* Why a walk ended. */
enum unspool_end {
	UNSPOOL_NOT_ENDED = 0,
	UNSPOOL_OUTERMOST = 1,           /* the table says that nothing called the frame: complete */
	UNSPOOL_ENTRY_POINT = 2,         /* entry code of program, loader or own stack: complete */
	UNSPOOL_LIMIT = 3,               /* there is no room for more addresses */
	UNSPOOL_ZERO_RETURN_ADDRESS = 4, /* the return address is zero */
	UNSPOOL_LOOP = 5,                /* the walk leads in a circle, or changes stacks without end */
	UNSPOOL_NO_MODULE = 6,           /* the address lies in no module, and no guess was plausible */
	UNSPOOL_NO_TABLE = 7,            /* no table covers the address, and no guess was plausible */
	UNSPOOL_BAD_TABLE = 8,           /* the table is damaged there */
	UNSPOOL_UNREADABLE = 9,          /* what leads to the caller is not mapped */
	UNSPOOL_NO_CALLER = 10           /* the table leads to no caller */
};

/* These numbers as text, such as "outermost frame". Never NULL; "?" for other numbers. */
const char *unspool_evidence_text(int evidence);
const char *unspool_end_text(int end);

/*
 * Prepares the process: notes which modules are loaded now, and finds their compiled tables where
 * there are any (`unspool compile` makes them): in the module itself (`--into`), the folders of
 * UNSPOOL_TABLE_PATH, the cache ($XDG_CACHE_HOME/unspool or ~/.cache/unspool), or
 * /usr/lib/unspool/tables. A table in a folder is used only if nobody but the user and root can write
 * to both.
 *
 * Nothing needs it: without, walks read the tables that the modules were linked with, and keep what
 * they learn. It makes first walks faster, and may be called again when libraries have been loaded.
 *
 * Returns how many tables were found. They stay. Not async-signal-safe.
 */
int unspool_prepare(void);

/*
 * Sets how much memory the process has for what walks have learnt: for each page of code (4 KiB) that
 * they come through, 1 KiB. `bytes` is a power of two from 64 KiB to 64 MiB; without a call it is 1 MiB, or
 * what UNSPOOL_RULES says in the environment (512K, 4M, or a number of bytes; not in setuid programs) when
 * the process is prepared. A program whose walks come through more code than there is room for
 * learns again and again; UNSPOOL_STATS=1 shows how often.
 *
 * Walks that begin from then on use it, and learn anew. Called before unspool_prepare, that has the kernel
 * provide it; afterwards the kernel provides what is used. What walks used before stays mapped; a size that
 * was set before has its memory of then.
 *
 * Returns 0, or an error number, and nothing has changed: EINVAL, or ENOMEM. Not async-signal-safe.
 */
int unspool_resize_rules(size_t bytes);

/*
 * Prepares the calling thread: finds out where its stack is, and maps 60 KiB for a memory of its
 * last walk, which are given back when the thread ends. From then on walks of its stack make no
 * system calls, and what has not changed since the last walk is compared and not walked again. A
 * second call does nothing. A plugin that has libunspool.a in it is not unloaded before the threads
 * end that it has prepared.
 *
 * Nothing needs it. Returns 0, or an error number: ENOMEM, or ESRCH in a thread that is ending and has
 * given its memory back. Not async-signal-safe.
 */
int unspool_prepare_thread(void);

/* What a walk came to. */
typedef struct unspool_walk {
	size_t frames;  /* how many addresses were written */
	size_t guesses; /* how many of these frames were guessed */
	int end;        /* enum unspool_end: why there are no more */
} unspool_walk;

/*
 * Writes where the frames of the calling thread stand to `addresses`, at most `count` of them: first
 * where this function returns to, then where its caller does, and so on.
 *
 * Look symbols up by the byte before a return address: it belongs to the call, the address itself
 * may belong to the next function. The address of a frame that a signal has interrupted is that of
 * an instruction: it follows that of the signal trampoline (__restore_rt).
 *
 * Returns how many were written. If `addresses` is NULL, or `count` is more than any memory has room
 * for, as SIZE_MAX is, none is. `walk` may be NULL: then nobody is told why there are no more.
 */
size_t unspool_backtrace(void **addresses, size_t count, unspool_walk *walk);

/*
 * The same for what a signal has interrupted: `ucontext` is the third argument of its handler
 * (SA_SIGINFO), which must run in the same thread and not have returned. The first address is that of
 * the interrupted instruction. If the handler runs on an alternate stack, the kernel is asked about
 * each page.
 */
size_t unspool_backtrace_from(const void *ucontext, void **addresses, size_t count,
                              unspool_walk *walk);

/*
 * A frame of the calling thread. It is copied by assignment, needs no end, and is of use as long as
 * the frame has not returned.
 */
typedef struct unspool_cursor {
	union {
		uint64_t opaque[192];
		long double alignment;
	} u;
} unspool_cursor;

/* Sets a cursor to the function that calls this one. */
void unspool_cursor_here(unspool_cursor *cursor);

/* Sets a cursor to what a signal has interrupted: see unspool_backtrace_from. */
void unspool_cursor_from(unspool_cursor *cursor, const void *ucontext);

/*
 * Steps to the caller. Returns 1; or 0 where there is none, and unspool_end_of says why. The cursor then
 * stays where it is.
 */
int unspool_step(unspool_cursor *cursor);

/* Where the frame stands. */
void *unspool_address(const unspool_cursor *cursor);

/*
 * 1 if that is a return address: the call is before it. 0 for the address of an instruction, which a
 * signal has interrupted.
 */
int unspool_is_return_address(const unspool_cursor *cursor);

/* 1 if the frame is a signal trampoline's: the next one was interrupted. */
int unspool_is_signal_frame(const unspool_cursor *cursor);

/* enum unspool_evidence: how the frame was found. */
int unspool_evidence_of(const unspool_cursor *cursor);

/* enum unspool_end: why there is no caller; UNSPOOL_NOT_ENDED before unspool_step has said so. */
int unspool_end_of(const unspool_cursor *cursor);

/* Registers, by their numbers in DWARF (System V psABI for x86-64, figure "DWARF Register Number
 * Mapping"). */
enum unspool_register {
	UNSPOOL_RAX = 0,
	UNSPOOL_RDX = 1,
	UNSPOOL_RCX = 2,
	UNSPOOL_RBX = 3,
	UNSPOOL_RSI = 4,
	UNSPOOL_RDI = 5,
	UNSPOOL_RBP = 6,
	UNSPOOL_RSP = 7,
	UNSPOOL_R8 = 8,
	UNSPOOL_R9 = 9,
	UNSPOOL_R10 = 10,
	UNSPOOL_R11 = 11,
	UNSPOOL_R12 = 12,
	UNSPOOL_R13 = 13,
	UNSPOOL_R14 = 14,
	UNSPOOL_R15 = 15,
	UNSPOOL_RIP = 16
};

/*
 * The value that a register has in the frame. Returns 0, or -1 if it is not known: a call need not
 * preserve rax, rcx, rdx, rsi, rdi and r8 to r11, so they are known only in frames that a signal
 * has interrupted. `value` may be NULL, to ask whether it is known.
 */
int unspool_get_register(const unspool_cursor *cursor, int number, uint64_t *value);

/*
 * Changes a register of the frame where it is saved, so that the frame finds the new value when it
 * goes on. Returns 0, or -1 if it is saved nowhere. Whether the frame can do with the value is the
 * caller's to know.
 */
int unspool_set_register(unspool_cursor *cursor, int number, uint64_t value);

/* Where a register of a frame is. */
enum unspool_place {
	UNSPOOL_LOST = 0,        /* nowhere: its value is not known */
	UNSPOOL_IN_MEMORY = 1,   /* in memory: `*address` is where */
	UNSPOOL_IN_REGISTER = 2, /* in the register: no function further in has saved it */
	UNSPOOL_COMPUTED = 3     /* nowhere: its value follows from others, as a stack pointer does */
};

/* enum unspool_place: where a register is. `address` is set only if that is in memory, and may be NULL. */
int unspool_save_location(const unspool_cursor *cursor, int number, void **address);

/*
 * The canonical frame address: the stack pointer before the call that made the frame. Returns 0, or -1
 * where no table covers the frame. `value` may be NULL.
 */
int unspool_get_cfa(const unspool_cursor *cursor, uint64_t *value);

/*
 * Goes on in a frame, as if the call that it waits for had returned `result` (rax). What lies further
 * in is left without cleanup: no destructor runs, and if a signal handler is among it, the signal mask
 * and the alternate stack stay as they are in the handler. Shadow stacks (CET) are not popped.
 *
 * A frame that a signal has interrupted waits for no call. To go on there, go on in the signal frame that
 * was found before it (unspool_is_signal_frame): the handler then returns, and the kernel restores all
 * registers, as unspool_set_register has changed them, the mask and the stack. `result` is of no account.
 *
 * Returns only if it cannot: -1 where a signal has interrupted the frame, or a register that calls
 * preserve is not known, as behind a guess by the frame pointer.
 */
int unspool_resume(const unspool_cursor *cursor, uint64_t result);

/* A loaded program or library. */
typedef struct unspool_module {
	void *start;                   /* its first address */
	void *end;                     /* one past its last */
	uint64_t bias;                 /* addresses in memory minus those in the file, as nm prints them */
	const unsigned char *build_id; /* its GNU build ID, of so many bytes */
	size_t build_id_length;        /* 0 where it has none */
	int has_table;                 /* 1 if it has a compiled table */
} unspool_module;

/*
 * The module at an address, which may be any, NULL too. Returns 0, or -1 if there is none. The build ID
 * stays where it is. `module` may be NULL, to ask whether there is one.
 */
int unspool_module_of(const void *address, unspool_module *module);

/* How an argument is to be taken. */
enum {
	UNSPOOL_KIND_SIGNED = 0,
	UNSPOOL_KIND_UNSIGNED = 1,
	UNSPOOL_KIND_BOOL = 2,
	UNSPOOL_KIND_CHAR = 3,
	UNSPOOL_KIND_POINTER = 4,
	UNSPOOL_KIND_TEXT = 5,    /* a pointer to characters that end with a zero */
	UNSPOOL_KIND_FLOAT = 6,
	UNSPOOL_KIND_BYTES = 7,
	UNSPOOL_KIND_ENUM = 8,
	UNSPOOL_KIND_RECORD = 9   /* a structure or union */
};

/* How certain the value of an argument is. */
enum {
	UNSPOOL_ARGUMENT_LOST = 0,    /* it is in no known location any more, or nobody knows where it was passed: `value` is 0 */
	UNSPOOL_ARGUMENT_LIKELY = 1,  /* it may have been written over */
	UNSPOOL_ARGUMENT_EXACT = 2    /* it is what the function was called with */
};

/* What a function was called with. Names do not end with a zero, and stay where they are. */
typedef struct unspool_argument {
	const char *name;    /* of the parameter, where that is known */
	size_t name_length;  /* 0 where it is not */
	const char *type;    /* as C has it */
	size_t type_length;
	size_t bytes;        /* the type's size */
	int kind;            /* UNSPOOL_KIND_SIGNED and so on */
	int certainty;       /* UNSPOOL_ARGUMENT_EXACT and so on */
	size_t callers;      /* how many frames further out it was found; 0: the function has kept it */
	uint64_t value;      /* its first eight bytes; what a smaller type has, without a sign */
} unspool_argument;

/*
 * What the function of the cursor's frame was called with: writes up to `count` arguments, and returns how many parameters it
 * has; 0 also where that is not known. That needs a table of arguments of the module (BUILD-ID.args.unspool, as `unspool stack --args`
 * keeps them), which unspool_prepare has mapped. Async-signal-safe.
 */
size_t unspool_arguments(const unspool_cursor *cursor, unspool_argument *arguments, size_t count);

#ifdef __cplusplus
}
#endif

#endif
