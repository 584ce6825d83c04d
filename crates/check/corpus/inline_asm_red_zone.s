# bug: like glibc lowlevellock.h: a sub that skips the red zone
# wrong: the red zone is skipped by a sub that is not described
# expect: refuted skipped

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	mov	%rdi, -16(%rsp)
#APP
	sub	$128, %rsp
	.ifndef	WRONG
	.cfi_adjust_cfa_offset	128
	.endif
skipped:
	call	g
	add	$128, %rsp
	.ifndef	WRONG
	.cfi_adjust_cfa_offset	-128
	.endif
#NO_APP
	add	-16(%rsp), %eax
	ret
	.cfi_endproc
	.size	f, . - f

	.globl	g
	.type	g, @function
g:
	.cfi_startproc
	mov	$1, %eax
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
