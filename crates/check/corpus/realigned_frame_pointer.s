# bug: none reported: a frame aligned by hand
# wrong: the stack pointer is rounded down, the CFA stays based on it
# expect: refuted aligned

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rbp
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbp, -16
	mov	%rsp, %rbp
	.ifndef	WRONG
	.cfi_def_cfa_register	%rbp
	.endif
	sub	$128, %rsp
	.ifdef	WRONG
	.cfi_adjust_cfa_offset	128
	.endif
	and	$-64, %rsp
aligned:
	movaps	%xmm0, (%rsp)
	mov	%edi, 60(%rsp)
	mov	60(%rsp), %eax
	mov	%rbp, %rsp
	.ifdef	WRONG
	.cfi_def_cfa	%rsp, 16
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
	sub	$8, %rsp
	.cfi_adjust_cfa_offset	8
	mov	$3, %edi
	call	f
	add	$8, %rsp
	.cfi_adjust_cfa_offset	-8
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main
