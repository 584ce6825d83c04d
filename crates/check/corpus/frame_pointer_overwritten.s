# bug: none reported: %rbp taken for something else
# wrong: the CFA is based on %rbp, which then holds something else
# expect: refuted overwritten

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rbp
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbp, -16
	mov	%rsp, %rbp
	.ifdef	WRONG
	.cfi_def_cfa_register	%rbp
	.endif
	mov	%rdi, -8(%rbp)
	lea	(%rdi,%rdi), %rbp
overwritten:
	mov	%rbp, %rax
	add	-8(%rsp), %rax
	.ifdef	WRONG
	.cfi_def_cfa	%rsp, 16
	.endif
	pop	%rbp
	.cfi_def_cfa	%rsp, 8
	.cfi_restore	%rbp
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
