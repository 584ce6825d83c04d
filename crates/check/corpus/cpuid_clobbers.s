# bug: none reported: a register that an instruction writes without naming it
# wrong: cpuid writes %rbx; the table calls it unchanged
# expect: refuted after_cpuid

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	mov	%rbx, %rsi
	.ifndef	WRONG
	.cfi_register	%rbx, %rsi
	.endif
	xor	%eax, %eax
	cpuid
after_cpuid:
	mov	%ebx, %eax
	mov	%rsi, %rbx
	.cfi_restore	%rbx
	ret
	.cfi_endproc
	.size	f, . - f

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	call	f
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main
