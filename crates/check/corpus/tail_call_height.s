# bug: none reported: a tail call with the row of the frame
# wrong: the jump to another function has the CFA of the whole frame
# expect: refuted jump

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	sub	$24, %rsp
	.cfi_adjust_cfa_offset	24
	mov	%rdi, 8(%rsp)
	mov	8(%rsp), %rdi
	add	$24, %rsp
	.ifndef	WRONG
	.cfi_adjust_cfa_offset	-24
	.endif
jump:
	jmp	g
	.cfi_endproc
	.size	f, . - f

	.globl	g
	.type	g, @function
g:
	.cfi_startproc
	mov	%edi, %eax
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
