# bug: coreclr PR 21955 (a removed adjust)
# wrong: the add that takes pushed arguments back after the call is not described
# expect: refuted after_call

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	sub	$8, %rsp
	.cfi_adjust_cfa_offset	8
	push	$5
	.cfi_adjust_cfa_offset	8
	push	$6
	.cfi_adjust_cfa_offset	8
	call	g
	add	$16, %rsp
	.ifndef	WRONG
	.cfi_adjust_cfa_offset	-16
	.endif
after_call:
	inc	%eax
	add	$8, %rsp
	.ifndef	WRONG
	.cfi_adjust_cfa_offset	-8
	.else
	.cfi_adjust_cfa_offset	-24
	.endif
	ret
	.cfi_endproc
	.size	f, . - f

	.globl	g
	.type	g, @function
g:
	.cfi_startproc
	mov	8(%rsp), %eax
	add	16(%rsp), %eax
	ret
	.cfi_endproc
	.size	g, . - g

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	call	f
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main
