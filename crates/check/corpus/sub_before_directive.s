# bug: LLVM issue 220720, class B, with the sub that aligns the stack before pushed arguments
# wrong: two instructions stand between the sub and its directive, and one more after the push
# expect: refuted aligned

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%r14
	.cfi_def_cfa_offset	16
	.cfi_offset	%r14, -16
	mov	%edi, %r14d
	sub	$8, %rsp
	.ifndef	WRONG
	.cfi_adjust_cfa_offset	8
	.endif
aligned:
	lea	1(%r14), %edi
	lea	2(%r14), %esi
	.ifdef	WRONG
	.cfi_adjust_cfa_offset	8
	.endif
	push	%r14
	.cfi_adjust_cfa_offset	8
	call	g
	add	$16, %rsp
	.cfi_adjust_cfa_offset	-16
	pop	%r14
	.cfi_def_cfa_offset	8
	ret
	.cfi_endproc
	.size	f, . - f

	.globl	g
	.type	g, @function
g:
	.cfi_startproc
	mov	8(%rsp), %eax
	add	%edi, %eax
	add	%esi, %eax
	ret
	.cfi_endproc
	.size	g, . - g

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
