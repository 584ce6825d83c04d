# bug: none reported: GCC spills general registers to vector registers
# wrong: %rbx is kept in %xmm1, the table names %xmm2. gdb reads such a rule, libgcc cannot
# expect: unproven-ok clobbered
# right: unproven-ok

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	movq	%rdi, %xmm2
	movq	%rbx, %xmm1
	.ifdef	WRONG
	.cfi_register	%rbx, %xmm2
	.else
	.cfi_register	%rbx, %xmm1
	.endif
clobbered:
	lea	1(%rdi), %rbx
	mov	%rbx, %rax
	movq	%xmm1, %rbx
	.cfi_restore	%rbx
	ret
	.cfi_endproc
	.size	f, . - f

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	mov	$3, %edi
	call	f
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main
