/*
 * unspool_variables.h - the variables of the functions on the stack of the own thread, by debug information.
 *
 * Linux on x86-64, with glibc 2.35 or later. C99 and C++. Link with -lunspool-variables -lunspool
 * (pkg-config unspool-variables).
 *
 * Tells what `unspool stack --args --locals` tells of a process from outside, of a frame that unspool.h has
 * found: parameters and local variables, also of functions that are inlined, with their types, and their values
 * as text. They are found by DWARF, in the program or in its separate debug files, so a program needs -g, or the
 * distribution's package of debug symbols.
 *
 * This is not unspool.h: it is made for a program that is well, to log what it is about. unspool_variables
 * allocates memory, takes the locks of malloc, and opens and maps files: the modules that are on the stack, and
 * their debug files. It is not async-signal-safe. A handler may call it for signals that the program raises
 * itself by what it does, as SIGFPE, if it did not interrupt malloc or the like: who does not know that must not.
 * It keeps nothing from call to call. errno may change.
 *
 * It may be called by any number of threads at once, each about its own stack. Pointers must not be NULL, but for
 * those of which it is said what NULL does.
 */
#ifndef UNSPOOL_VARIABLES_H
#define UNSPOOL_VARIABLES_H

#include <unspool.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * How certain it is what a parameter was at entry, beside UNSPOOL_ARGUMENT_LOST, UNSPOOL_ARGUMENT_LIKELY and
 * UNSPOOL_ARGUMENT_EXACT.
 */
enum {
	UNSPOOL_ARGUMENT_DESCRIBED = 3 /* the caller's debug information says so: less than exact, more than likely */
};

/* A variable. Texts and bytes are there until the function returns that is told of it. */
typedef struct unspool_variable {
	size_t frame;         /* of which frame: how many steps further out than the cursor's */
	void *address;        /* where that stands, as unspool_address has it */
	const char *function; /* of which function; "" where that is not known */
	size_t inlined;       /* 0: of the frame's own function; else of one that is inlined there, so deep */
	int is_parameter;     /* 1 if it is a parameter, 0 if it is a local variable */
	size_t block;         /* in how many blocks of that function it is, beside the body, as the compiler has them */
	const char *name;     /* "(unnamed)", or "#1" and so on for a parameter whose name is not known */
	const char *type;     /* as C has it; in functions in Rust, as Rust */

	/* What it is now. */
	const char *value;          /* as C has it, what is not known of it as <lost>; NULL if nothing is */
	const char *lost;           /* why nothing is known of it; NULL if anything is */
	const unsigned char *bytes; /* what it is in memory, or would be; NULL if nothing is known */
	const unsigned char *known; /* for each of these, which of its bits are known: 255 if all are */
	size_t size;                /* how many bytes that are: at most 1,024, even if it has more */

	/* What it was when the function was called: of parameters of the frame's own function only. */
	const char *entry; /* as C has it; NULL if that is not known */
	int certainty;     /* UNSPOOL_ARGUMENT_LOST and so on */
	size_t callers;    /* how many frames further out it was found */
} unspool_variable;

/* What is asked for, and who is told. */
typedef struct unspool_variables_asked {
	size_t first;  /* the frames: from the one so many steps further out than the cursor's, 0 for that itself; */
	size_t frames; /* so many of them; SIZE_MAX for all */
	int strings;   /* 1: show the characters that a char * leads to, too, and what slices of Rust do */
	/* Told of each variable; if it does not return 0, there are no more. NULL: nobody is. */
	int (*variable)(const unspool_variable *variable, void *data);
	/* Told why less is known than could be, one line at a time. NULL: nobody is. */
	void (*problem)(const char *text, void *data);
	void *data; /* for these two */
} unspool_variables_asked;

/*
 * Tells of the variables of frames of the calling thread: of the cursor's and of those further out, as
 * asked->first and asked->frames say. The innermost frame comes first; in it the innermost function that is
 * inlined there; of each function its parameters first, then its variables, those of the innermost block first.
 *
 * The values are those that the frames have now: of a frame that waits for a call, where the call is. Registers are
 * those of when the cursor was set: if its frame has gone on since, set it anew.
 *
 * What is known of registers that calls may change follows from the frames further in: so begin with a cursor that
 * is as far in as can be, and ask for frames further out by asked->first, rather than to step there.
 *
 * What parameters were at entry is said as far as callers' debug information says so, and as far as a module's table
 * of arguments does, which `unspool stack --args` makes and keeps (see unspool_arguments). Frames that are
 * guesses, and those behind, are told nothing of. Nor are programs that have more rights than their caller
 * (setuid, setgid, capabilities).
 *
 * Functions that are told must return: no longjmp, no exceptions.
 *
 * Returns 0; 1 if asked->variable wanted no more; -1 if nothing can be told, and asked->problem says why.
 */
int unspool_variables(const unspool_cursor *cursor, const unspool_variables_asked *asked);

#ifdef __cplusplus
}
#endif

#endif
