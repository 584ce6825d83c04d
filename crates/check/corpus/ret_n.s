# bug: none reported: callees that pop arguments
# wrong: the caller adjusts for arguments that its callee popped only after the next instruction
# expect: refuted popped

	.text
	.globl	callee
	.type	callee, @function
callee:
	.cfi_startproc
	mov	8(%rsp), %rax
	add	16(%rsp), %rax
	ret	$16
	.cfi_endproc
	.size	callee, . - callee

	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rdi
	.cfi_adjust_cfa_offset	8
	push	$4
	.cfi_adjust_cfa_offset	8
	call	callee
	.ifndef	WRONG
	.cfi_adjust_cfa_offset	-16
	.endif
popped:
	inc	%eax
	.ifdef	WRONG
	.cfi_adjust_cfa_offset	-16
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
