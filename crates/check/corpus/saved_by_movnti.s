# bug: none reported: a register saved by a store past the caches, as memset functions store
# wrong: the table names the slot beside
# expect: refuted saved

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	sub	$24, %rsp
	.cfi_adjust_cfa_offset	24
	movnti	%rbx, 8(%rsp)
	xor	%ebx, %ebx
	.ifdef	WRONG
	.cfi_rel_offset	%rbx, 0
	.else
	.cfi_rel_offset	%rbx, 8
	.endif
saved:
	nop
	mov	8(%rsp), %rbx
	.cfi_restore	%rbx
	add	$24, %rsp
	.cfi_adjust_cfa_offset	-24
	ret
	.cfi_endproc
	.size	f, . - f

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	call	f
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main
