# bug: like GCC 12.2's realigned epilogue (a rule kept after the pop), with the slot written again
# wrong: the rule of %r12 is kept after its pop; the next push takes its place
# expect: refuted pushed

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%r12
	.cfi_adjust_cfa_offset	8
	.cfi_rel_offset	%r12, 0
	mov	%rdi, %r12
	lea	1(%r12), %rdi
	pop	%r12
	.cfi_adjust_cfa_offset	-8
	.ifndef	WRONG
	.cfi_restore	%r12
	.endif
	push	%rdi
	.cfi_adjust_cfa_offset	8
pushed:
	call	g
	pop	%rdi
	.cfi_adjust_cfa_offset	-8
	.ifdef	WRONG
	.cfi_restore	%r12
	.endif
	ret
	.cfi_endproc
	.size	f, . - f

	.globl	g
	.type	g, @function
g:
	.cfi_startproc
	mov	8(%rsp), %rax
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
