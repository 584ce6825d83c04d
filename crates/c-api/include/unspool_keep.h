/*
 * Keeping arguments for backtraces: a function copies them into its frame.
 *
 * 	long serve(struct request *request, int tries)
 * 	{
 * 		UNSPOOL_KEEP(1, request);
 * 		UNSPOOL_KEEP(2, tries);
 * 		...
 * 	}
 *
 * This costs a store, a no-op instruction, and about twenty bytes in a section that is not
 * loaded. `unspool stack --args` shows such an argument as exact as long as the function runs. It
 * must be the value at the call: write this before the parameter is changed. It needs no library.
 *
 * x86-64; gcc, clang.
 */
#ifndef UNSPOOL_KEEP_H
#define UNSPOOL_KEEP_H

/* Keeps the parameter `argument`, the function's `number`th, from 1 on. Use it once for each, in
   the function's outermost block. */
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
