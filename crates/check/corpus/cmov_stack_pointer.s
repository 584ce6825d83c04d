# bug: like LLVM #167391 (a stack pointer adjusted without CFI), with cmov
# wrong: %rsp may be one of two values, the CFA stays based on it
# expect: refuted chosen

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rbp
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbp, -16
	mov	%rsp, %rbp
	.ifndef	WRONG
	.cfi_def_cfa_register	%rbp
	.endif
	lea	-64(%rsp), %rax
	test	%edi, %edi
	cmovnz	%rax, %rsp
chosen:
	mov	%edi, -4(%rsp)
	mov	-4(%rsp), %eax
	mov	%rbp, %rsp
	.ifdef	WRONG
	.cfi_def_cfa	%rsp, 16
	.endif
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
	xor	%edi, %edi
	call	f
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main
