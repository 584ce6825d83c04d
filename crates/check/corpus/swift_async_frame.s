# bug: LLVM PR 202570
# wrong: two extra pushes between push %rbp and lea 16(%rsp), %rbp are not described
# expect: refuted extra

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rbp
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbp, -16
	push	%r14
	.ifndef	WRONG
	.cfi_def_cfa_offset	24
	.endif
extra:
	push	$0
	.ifndef	WRONG
	.cfi_def_cfa_offset	32
	.endif
	lea	16(%rsp), %rbp
	.cfi_def_cfa	%rbp, 16
	mov	%rdi, (%rsp)
	mov	(%rsp), %rax
	add	$16, %rsp
	pop	%rbp
	.cfi_def_cfa	%rsp, 8
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
