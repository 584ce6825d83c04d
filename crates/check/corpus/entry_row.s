# bug: none reported: a generator that emits the state behind the prologue for the whole function
# wrong: at the entry the frame is described that the prologue is about to make
# expect: refuted f

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	.ifdef	WRONG
	.cfi_def_cfa_offset	48
	.endif
	sub	$40, %rsp
	.ifndef	WRONG
	.cfi_def_cfa_offset	48
	.endif
	mov	%edi, 8(%rsp)
	mov	8(%rsp), %eax
	add	$40, %rsp
	.cfi_def_cfa_offset	8
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
