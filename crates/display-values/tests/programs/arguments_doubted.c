/*
 * Registers that differ from the preceding code or the unwind table.
 *
 * frame: NAME ARGUMENTS has the arguments of a function.
 */
#include <sys/mman.h>

#define PAGE ((char *)0x10000000)

/* It faults at the end of the page after writing 16 bytes: by then rdi and rcx have changed. */
__attribute__((noipa)) void fill(char *to, long count) /* frame: fill 0x10000ff0 32 */
{
	__asm__ volatile("rep stosb" : "+D"(to), "+c"(count) : "a"(0) : "memory");
}

/* Its table does not say that it has saved rbx. */
__asm__("	.text\n"
	"	.type	spoil, @function\n"
	"spoil:	.cfi_startproc\n"
	"	push	%rbx\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	mov	$0x5a, %ebx\n"
	"	call	fill\n"
	"	pop	%rbx\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	ret\n"
	"	.cfi_endproc\n"
	"	.size	spoil, . - spoil\n");

void spoil(char *to, long count);

/* At -O2 it keeps the number in rbx. */
__attribute__((noipa)) long holds(long number) /* frame: holds 77 */
{
	spoil(PAGE + 0xff0, 32);
	return number;
}

/* So does its caller, which also shows the argument of `holds`. */
__attribute__((noipa)) long hands_on(long number) /* frame: hands_on 77 */
{
	return holds(number) + number;
}

volatile long seventy_seven = 77;

int main(void)
{
	mmap(PAGE, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	return (int)hands_on(seventy_seven);
}
