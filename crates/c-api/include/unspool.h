/*
 * unspool.h - the calling thread's stack: return addresses, registers, and how they were found.
 *
 * Linux on x86-64, with glibc 2.35 or later. C99 and C++. Link with -lunspool (pkg-config unspool).
 *
 * A stack is walked by the unwind tables that compilers leave in every program and library
 * (.eh_frame, or .sframe for code without it). Neither frame pointers nor debug information are
 * needed. Every frame reports how it was found, and every walk why it ended. A walk does not
 * crash on a damaged stack or table: the kernel is asked before unknown memory is read.
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
 *   (1) It maps its own memory with mmap. malloc is called only by the C library itself: to register
 *       a thread's destructor, to find a thread's stack, and, with UNSPOOL_STATS=1, to register an
 *       exit handler.
 *   (2) None for the thread's own stack, if the thread has been prepared and the caller runs on that
 *       stack. None for segments of loaded modules. Otherwise one rt_sigprocmask, which changes
 *       nothing, for each page that is read; a walk or step caches the last eight pages. errno is
 *       preserved.
 *
 * All functions may be called by any number of threads at once, each for its own stack. They use
 * up to 20 KiB of stack, when a walk reaches code that is new to all walks: an alternate signal
 * stack should have 32 KiB (SIGSTKSZ is too small). docs/api.md lists the bytes of each function.
 *
 * Pointers must not be NULL, except where the effect of NULL is documented.
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

/* The version of the library at run time, such as "0.1.0". */
const char *unspool_version(void);

/* How a frame was found from the frame further in. */
enum unspool_evidence {
	UNSPOOL_GIVEN = 0,             /* the first frame of the walk */
	UNSPOOL_TABLE = 1,             /* by an unwind table: not guessed */
	UNSPOOL_SIGNAL_TRAMPOLINE = 2, /* guessed: code that returns from signals, by its bytes */
	UNSPOOL_BAD_CALL = 3,          /* guessed: the frame is outside of code, and was called */
	UNSPOOL_FRAME_POINTER = 4,     /* guessed: by the frame pointer, without a table */
	UNSPOOL_SYNTHESIZED = 5        /* by rows derived from the code, without a table */
};

/* Why a walk ended. */
enum unspool_end {
	UNSPOOL_NOT_ENDED = 0,
	UNSPOOL_OUTERMOST = 1,           /* the table marks the frame as outermost: complete */
	UNSPOOL_ENTRY_POINT = 2,         /* entry code of program, loader or coroutine: complete */
	UNSPOOL_LIMIT = 3,               /* there is no room for more addresses */
	UNSPOOL_ZERO_RETURN_ADDRESS = 4, /* the return address is zero */
	UNSPOOL_LOOP = 5,                /* the walk is circular, or changes stacks without end */
	UNSPOOL_NO_MODULE = 6,           /* the address is in no module, and no guess was plausible */
	UNSPOOL_NO_TABLE = 7,            /* no table covers the address, and no guess was plausible */
	UNSPOOL_BAD_TABLE = 8,           /* the table is damaged there */
	UNSPOOL_UNREADABLE = 9,          /* memory needed to find the caller is not mapped */
	UNSPOOL_NO_CALLER = 10           /* the table gives no caller */
};

/* The text of these numbers, such as "outermost frame". Never NULL; "?" for other numbers. */
const char *unspool_evidence_text(int evidence);
const char *unspool_end_text(int end);

/*
 * Prepares the process: records the modules loaded now, and finds their compiled tables (`unspool
 * compile` makes them). A table can be in the module itself (`--into`), the folders of
 * UNSPOOL_TABLE_PATH, the cache ($XDG_CACHE_HOME/unspool or ~/.cache/unspool), or
 * /usr/lib/unspool/tables. A table in a folder is used only if nobody except the user and root can
 * write to the table or the folder.
 *
 * It is optional: without it, walks read the tables that the modules were linked with, and cache
 * rules. It makes first walks faster, and may be called again after libraries were loaded.
 *
 * Returns the number of tables found. They stay mapped. Not async-signal-safe.
 */
int unspool_prepare(void);

/*
 * Sets the size of the process's rule cache: walks need 1 KiB for each page of code (4 KiB) that
 * they pass. `bytes` is a power of two from 64 KiB to 64 MiB. The default is 1 MiB, or the value
 * of UNSPOOL_RULES in the environment (512K, 4M, or a number of bytes; ignored in setuid
 * programs) when the process is prepared. If walks pass more code than the cache has room for,
 * rules are resolved repeatedly; UNSPOOL_STATS=1 shows how often.
 *
 * Walks that begin later use the new cache, which is empty. If this is called before
 * unspool_prepare, that makes the kernel provide all of it; otherwise the kernel provides the
 * parts in use. The former cache stays mapped, and is used again if its size is set again.
 *
 * Returns 0, or an error number without any change: EINVAL, or ENOMEM. Not async-signal-safe.
 */
int unspool_resize_rules(size_t bytes);

/*
 * Prepares the calling thread: finds its stack, and maps 60 KiB for a memo of its last walk,
 * which are unmapped when the thread ends. From then on walks of its stack make no system calls,
 * and frames unchanged since the last walk are compared and not walked again. A second call does
 * nothing. A plugin that contains libunspool.a is not unloaded before all threads that it
 * prepared have ended.
 *
 * It is optional. Returns 0, or an error number: ENOMEM, or ESRCH in an ending thread that has
 * unmapped its memory. Not async-signal-safe.
 */
int unspool_prepare_thread(void);

/* The result of a walk. */
typedef struct unspool_walk {
	size_t frames;  /* the number of addresses written */
	size_t guesses; /* the number of guessed frames among these */
	int end;        /* enum unspool_end: why the walk ended */
} unspool_walk;

/*
 * Writes the code addresses of the calling thread's frames to `addresses`, at most `count` of
 * them: first this function's return address, then its caller's, and so on.
 *
 * Look symbols up by the byte before a return address: it belongs to the call, the address itself
 * may belong to the next function. The address of an interrupted frame is that of an instruction:
 * it follows that of the signal trampoline (__restore_rt).
 *
 * Returns the number of addresses written: 0 if `addresses` is NULL, or if `count` exceeds all
 * memory (such as SIZE_MAX). `walk` may be NULL if the result of the walk is not needed.
 */
size_t unspool_backtrace(void **addresses, size_t count, unspool_walk *walk);

/*
 * The same for interrupted code: `ucontext` is the third argument of its handler (SA_SIGINFO),
 * which must run in the same thread and not have returned. The first address is that of the
 * interrupted instruction. If the handler runs on an alternate stack, the kernel is asked about
 * each page.
 */
size_t unspool_backtrace_from(const void *ucontext, void **addresses, size_t count,
                              unspool_walk *walk);

/*
 * A frame of the calling thread. It can be copied by assignment, needs no cleanup, and is valid
 * as long as the frame has not returned.
 */
typedef struct unspool_cursor {
	union {
		uint64_t opaque[192];
		long double alignment;
	} u;
} unspool_cursor;

/* Sets a cursor to the function that calls this one. */
void unspool_cursor_here(unspool_cursor *cursor);

/* Sets a cursor to interrupted code: see unspool_backtrace_from. */
void unspool_cursor_from(unspool_cursor *cursor, const void *ucontext);

/*
 * Steps to the caller. Returns 1; or 0 if there is none, and unspool_end_of returns why. The
 * cursor is then unchanged.
 */
int unspool_step(unspool_cursor *cursor);

/* The code address of the frame. */
void *unspool_address(const unspool_cursor *cursor);

/*
 * 1 if that is a return address: the call is before it. 0 for the address of an interrupted
 * instruction.
 */
int unspool_is_return_address(const unspool_cursor *cursor);

/* 1 if the frame is a signal trampoline's: the next one was interrupted. */
int unspool_is_signal_frame(const unspool_cursor *cursor);

/* enum unspool_evidence: how the frame was found. */
int unspool_evidence_of(const unspool_cursor *cursor);

/* enum unspool_end: why there is no caller; UNSPOOL_NOT_ENDED before unspool_step has failed. */
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
 * The value of a register in the frame. Returns 0, or -1 if it is unknown: a call need not
 * preserve rax, rcx, rdx, rsi, rdi and r8 to r11, so they are known only in interrupted frames.
 * `value` may be NULL, to check whether it is known.
 */
int unspool_get_register(const unspool_cursor *cursor, int number, uint64_t *value);

/*
 * Changes the saved value of a register of the frame, so that the frame uses the new value when
 * it continues. Returns 0, or -1 if it is not saved. The caller must ensure that the value is
 * valid for the frame.
 */
int unspool_set_register(unspool_cursor *cursor, int number, uint64_t value);

/* The location of a frame's register. */
enum unspool_place {
	UNSPOOL_LOST = 0,        /* its value is unknown */
	UNSPOOL_IN_MEMORY = 1,   /* in memory, at `*address` */
	UNSPOOL_IN_REGISTER = 2, /* in the register: no inner function has saved it */
	UNSPOOL_COMPUTED = 3     /* not stored: its value follows from others, as a stack pointer's */
};

/* enum unspool_place: the location of a register. `address` is set only if that is in memory, and
   may be NULL. */
int unspool_save_location(const unspool_cursor *cursor, int number, void **address);

/*
 * The canonical frame address: the stack pointer before the call that made the frame. Returns 0,
 * or -1 if no table covers the frame. `value` may be NULL.
 */
int unspool_get_cfa(const unspool_cursor *cursor, uint64_t *value);

/*
 * Continues in a frame, as if its current call had returned `result` (rax). Inner frames are left
 * without cleanup: no destructor runs, and if a signal handler is among them, the signal mask and
 * the alternate stack stay as they are in the handler. Shadow stacks (CET) are not popped.
 *
 * To continue in a frame that a signal interrupted, continue in the signal frame found before it
 * (unspool_is_signal_frame): the handler then returns, and the kernel restores all registers,
 * with the changes of unspool_set_register, the mask and the stack. `result` is ignored.
 *
 * Returns only on failure: -1 if the frame was interrupted, or a call-preserved register is
 * unknown, as after a guess by the frame pointer.
 */
int unspool_resume(const unspool_cursor *cursor, uint64_t result);

/* A loaded program or library. */
typedef struct unspool_module {
	void *start;                   /* its first address */
	void *end;                     /* one past its last */
	uint64_t bias;                 /* addresses in memory minus those in the file, as nm prints them */
	const unsigned char *build_id; /* its GNU build ID, of `build_id_length` bytes */
	size_t build_id_length;        /* 0 if it has none */
	int has_table;                 /* 1 if it has a compiled table */
} unspool_module;

/*
 * The module at any address, including NULL. Returns 0, or -1 if there is none. The build ID
 * points into the module. `module` may be NULL, to check whether there is one.
 */
int unspool_module_of(const void *address, unspool_module *module);

/* The interpretation of an argument's value. */
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

/* The certainty of an argument's value. */
enum {
	UNSPOOL_ARGUMENT_LOST = 0,    /* its location is no longer, or was never, known: `value` is 0 */
	UNSPOOL_ARGUMENT_LIKELY = 1,  /* it may have been overwritten */
	UNSPOOL_ARGUMENT_EXACT = 2    /* it is the value at the call */
};

/* An argument of a function. Names are not zero-terminated, and stay valid. */
typedef struct unspool_argument {
	const char *name;    /* of the parameter, if it is known */
	size_t name_length;  /* 0 if it is unknown */
	const char *type;    /* in C notation */
	size_t type_length;
	size_t bytes;        /* the type's size */
	int kind;            /* UNSPOOL_KIND_SIGNED and so on */
	int certainty;       /* UNSPOOL_ARGUMENT_EXACT and so on */
	size_t callers;      /* how many frames further out it was found; 0: in the function's own frame */
	uint64_t value;      /* its first eight bytes; zero-extended for a smaller type */
} unspool_argument;

/*
 * The arguments of the cursor frame's function: writes up to `count` arguments, and returns the
 * number of its parameters; 0 also if that is unknown. This needs the module's argument table
 * (BUILD-ID.args.unspool, as cached by `unspool stack --args`), mapped by unspool_prepare.
 * Async-signal-safe.
 */
size_t unspool_arguments(const unspool_cursor *cursor, unspool_argument *arguments, size_t count);

#ifdef __cplusplus
}
#endif

#endif
