# bug: OCaml PR 2300 (wrong adjusts)
# wrong: the pop before the return is not described
# expect: refuted after_pop

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%r12
	.cfi_adjust_cfa_offset	8
	.cfi_offset	%r12, -16
	lea	(%rdi,%rdi), %r12
	mov	%r12, %rax
	pop	%r12
after_pop:
	.ifndef	WRONG
	.cfi_adjust_cfa_offset	-8
	.endif
	.cfi_restore	%r12
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
