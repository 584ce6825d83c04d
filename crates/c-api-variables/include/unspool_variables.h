/*
 * unspool_variables.h - variables of the functions on the calling thread's stack, by debug
 * information.
 *
 * Linux on x86-64, with glibc 2.35 or later. C99 and C++. Link with -lunspool-variables -lunspool
 * (pkg-config unspool-variables).
 *
 * Reports the variables of a frame found by unspool.h, like `unspool stack --args --locals` for
 * another process: parameters and local variables, also of inlined functions, with their types,
 * and their values as text. They are found by DWARF, in the program or in its separate debug
 * files, so a program needs -g, or the distribution's package of debug symbols.
 *
 * Unlike unspool.h, this is for intact programs, to log their state. unspool_variables allocates
 * memory, takes the locks of malloc, and opens and maps files: the modules on the stack, and
 * their debug files. It is not async-signal-safe. A handler may call it for synchronous signals
 * such as SIGFPE, only if it certainly did not interrupt malloc or similar code. It keeps nothing
 * from call to call. errno may change.
 *
 * It may be called by any number of threads at once, each for its own stack. Pointers must not be
 * NULL, except where the effect of NULL is documented.
 */
#ifndef UNSPOOL_VARIABLES_H
#define UNSPOOL_VARIABLES_H

#include <unspool.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The certainty of a parameter's value at entry, in addition to UNSPOOL_ARGUMENT_LOST,
 * UNSPOOL_ARGUMENT_LIKELY and UNSPOOL_ARGUMENT_EXACT.
 */
enum {
	UNSPOOL_ARGUMENT_DESCRIBED = 3 /* by the caller's debug information: less than exact, more than likely */
};

/* A variable. Texts and bytes are valid until the callback returns. */
typedef struct unspool_variable {
	size_t frame;         /* its frame: how many steps further out than the cursor's */
	void *address;        /* the frame's code address, as from unspool_address */
	const char *function; /* its function; "" if that is unknown */
	size_t inlined;       /* 0: of the frame's own function; else the depth of the inlined function */
	int is_parameter;     /* 1 if it is a parameter, 0 if it is a local variable */
	size_t block;         /* its depth of nested blocks in the function, by the compiler; 0: the body */
	const char *name;     /* "(unnamed)", or "#1" and so on for a parameter without a known name */
	const char *type;     /* in C notation; in Rust's for Rust functions */

	/* Its current value. */
	const char *value;          /* in C notation, with <lost> for unknown parts; NULL if nothing is known */
	const char *lost;           /* why nothing is known; NULL if any part is known */
	const unsigned char *bytes; /* its representation in memory; NULL if nothing is known */
	const unsigned char *known; /* a mask of known bits for each byte: 255 if all are */
	size_t size;                /* the number of these bytes: at most 1,024, even if it has more */

	/* The value when the function was called: only for parameters of the frame's own function. */
	const char *entry; /* in C notation; NULL if that is unknown */
	int certainty;     /* UNSPOOL_ARGUMENT_LOST and so on */
	size_t callers;    /* how many frames further out it was found */
} unspool_variable;

/* A request, and its callbacks. */
typedef struct unspool_variables_asked {
	size_t first;  /* the first frame: steps further out than the cursor's, 0 for that itself; */
	size_t frames; /* the number of frames; SIZE_MAX for all */
	int strings;   /* 1: also show the characters at a char *, and the elements of Rust slices */
	/* Called for each variable; a result other than 0 ends the report. May be NULL. */
	int (*variable)(const unspool_variable *variable, void *data);
	/* Called with each reason why less is known than possible, as one line. May be NULL. */
	void (*problem)(const char *text, void *data);
	void *data; /* the callbacks' argument */
} unspool_variables_asked;

/*
 * Reports the variables of frames of the calling thread: of the cursor's and of those further
 * out, by asked->first and asked->frames. The innermost frame comes first; in it the innermost
 * inlined function first. Each function's parameters come first, then its variables, those of the
 * innermost block first.
 *
 * The values are the frames' current ones; for a frame at a call, those at the call. Registers
 * are those of the time when the cursor was set: if its frame has continued since, set it again.
 *
 * The known values of registers that calls may change follow from the frames further in. So begin
 * with the innermost possible cursor, and request frames further out by asked->first instead of
 * stepping there.
 *
 * The values of parameters at entry are from callers' debug information, and from a module's
 * argument table, which `unspool stack --args` makes and caches (see unspool_arguments). There is
 * no report for guessed frames and those further out, nor in programs with more rights than their
 * caller (setuid, setgid, capabilities).
 *
 * Callbacks must return: no longjmp, no exceptions.
 *
 * Returns 0; 1 if asked->variable ended the report; -1 if nothing can be reported, after a call
 * of asked->problem.
 */
int unspool_variables(const unspool_cursor *cursor, const unspool_variables_asked *asked);

#ifdef __cplusplus
}
#endif

#endif
