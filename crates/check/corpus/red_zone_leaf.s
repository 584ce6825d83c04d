# bug: none reported: an adjust where nothing moves
# wrong: %rbx is kept in the red zone, the stack pointer does not move; an adjustment pretends a push
# expect: refuted saved

	.text
	.globl	leaf
	.type	leaf, @function
leaf:
	.cfi_startproc
	mov	%rbx, -8(%rsp)
	.ifdef	WRONG
	.cfi_adjust_cfa_offset	8
	.endif
	.cfi_offset	%rbx, -16
saved:
	lea	1(%rdi), %ebx
	mov	%ebx, %eax
	mov	-8(%rsp), %rbx
	.ifdef	WRONG
	.cfi_adjust_cfa_offset	-8
	.endif
	.cfi_restore	%rbx
	ret
	.cfi_endproc
	.size	leaf, . - leaf

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	mov	$3, %edi
	call	leaf
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main
