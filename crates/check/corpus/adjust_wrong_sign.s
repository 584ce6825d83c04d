# bug: like rust stacker/psm PR 71 (a wrong sign), here of an adjustment
# wrong: the subtraction is described with the sign of the register's change
# expect: refuted body

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	sub	$40, %rsp
	.ifdef	WRONG
	.cfi_adjust_cfa_offset	-40
	.else
	.cfi_adjust_cfa_offset	40
	.endif
body:
	mov	%rdi, 24(%rsp)
	mov	24(%rsp), %rax
	add	$40, %rsp
	.ifdef	WRONG
	.cfi_adjust_cfa_offset	40
	.else
	.cfi_adjust_cfa_offset	-40
	.endif
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
