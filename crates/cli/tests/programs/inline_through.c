// Inline assembly that moves the stack pointer and calls: the compiler's rows do not describe that.
void callee(int n);

#if defined(BRANCH)
#define BODY                        \
	"push	%%r12\n\t"          \
	"push	%%r13\n\t"          \
	"test	%[n], %[n]\n\t"     \
	"jz	1f\n\t"             \
	"mov	%[n], %%edi\n\t"    \
	"call	callee\n"           \
	"1:\t"                      \
	"pop	%%r13\n\t"          \
	"pop	%%r12"
#elif defined(LOOP)
#define BODY                        \
	"push	%%r12\n\t"          \
	"push	%%r13\n\t"          \
	"mov	%[n], %%r12d\n"     \
	"1:\t"                      \
	"mov	%[n], %%edi\n\t"    \
	"call	callee\n\t"         \
	"dec	%%r12d\n\t"         \
	"jnz	1b\n\t"             \
	"pop	%%r13\n\t"          \
	"pop	%%r12"
#elif defined(REALIGNED)
#define BODY                        \
	"mov	%%rsp, %%r12\n\t"   \
	"and	$-64, %%rsp\n\t"    \
	"mov	%[n], %%edi\n\t"    \
	"call	callee\n\t"         \
	"mov	%%r12, %%rsp"
#elif defined(OTHER_STACK)
#define BODY                             \
	"push	%%r12\n\t"               \
	"mov	%%rsp, %%r12\n\t"        \
	"lea	other+65536(%%rip), %%rsp\n\t" \
	"mov	%[n], %%edi\n\t"         \
	"call	callee\n\t"              \
	"mov	%%r12, %%rsp\n\t"        \
	"pop	%%r12"
__asm__(".local other\n\t.comm other, 65536, 64");
#else
#define BODY                        \
	"push	%%r12\n\t"          \
	"push	%%r13\n\t"          \
	"mov	%[n], %%edi\n\t"    \
	"call	callee\n\t"         \
	"pop	%%r13\n\t"          \
	"pop	%%r12"
#endif

long through(int n)
{
	long kept = n;

	__asm__ volatile(BODY
			 :
			 : [n] "r"(n)
			 : "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11",
#if defined(REALIGNED)
			   "r12",
#endif
			   "memory", "cc");
	return kept + 1;
}
