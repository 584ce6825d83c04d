# bug: none reported: adjusts copied from a function without frame pointer
# wrong: the pops after lea -16(%rbp), %rsp are described, as if the CFA were based on %rsp, but it is not
# expect: refuted popped

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rbp
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbp, -16
	mov	%rsp, %rbp
	.cfi_def_cfa_register	%rbp
	push	%r12
	.cfi_offset	%r12, -24
	push	%rbx
	.cfi_offset	%rbx, -32
	sub	$32, %rsp
	mov	%edi, %ebx
	lea	1(%rbx), %r12d
	mov	%r12d, %eax
	lea	-16(%rbp), %rsp
	pop	%rbx
	.ifdef	WRONG
	.cfi_adjust_cfa_offset	-8
	.endif
popped:
	pop	%r12
	.ifdef	WRONG
	.cfi_adjust_cfa_offset	-8
	.endif
	pop	%rbp
	.cfi_def_cfa	%rsp, 8
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
