/*
 * Arguments that backtraces are to show whatever becomes of them: a function copies them into its frame, on purpose.
 *
 *	long serve(struct request *request, int tries)
 *	{
 *		UNSPOOL_KEEP(1, request);
 *		UNSPOOL_KEEP(2, tries);
 *		...
 *	}
 *
 * That costs a store, an instruction that does nothing, and some twenty bytes in a section that is not loaded. `unspool stack --args` shows
 * such an argument as exact for as long as the function runs. It must be what the function was called with: write this before the parameter
 * is changed. Nothing of it needs a library.
 *
 * x86-64; gcc, clang.
 */
#ifndef UNSPOOL_KEEP_H
#define UNSPOOL_KEEP_H

/* Keeps the parameter `argument`, which is the function's `number`th, from 1 on. Once for each in a function's outermost block. */
#define UNSPOOL_KEEP(number, argument)                                        \
	volatile __typeof__(argument) unspool_kept_##number = (argument);     \
	__asm__ volatile("990:\n\tnop\n"                                      \
	                 "\t.pushsection .unspool.kept, \"\", %%progbits\n"    \
	                 "\t.balign 8\n"                                      \
	                 "\t.8byte 990b\n"                                    \
	                 "\t.byte " #number ", %c1\n"                         \
	                 "\t.asciz \"%0\"\n"                                  \
	                 "\t.popsection"                                      \
	                 : "+m"(unspool_kept_##number)                        \
	                 : "i"(sizeof(argument)))

#endif
