# bug: none reported: a push and a return are a jump, as in retpolines
# wrong: the pushed target is not described
# expect: refuted pushed

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	sub	$8, %rsp
	.cfi_adjust_cfa_offset	8
	lea	.Lback(%rip), %rax
	push	%rax
	.ifndef	WRONG
	.cfi_adjust_cfa_offset	8
	.endif
pushed:
	ret
	.ifndef	WRONG
	.cfi_adjust_cfa_offset	-8
	.endif
.Lback:
	mov	%edi, %eax
	add	$8, %rsp
	.cfi_adjust_cfa_offset	-8
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
