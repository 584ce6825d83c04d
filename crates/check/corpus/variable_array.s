# bug: like LLVM #167391 (a stack pointer adjusted without CFI), with an array of variable length
# wrong: the stack pointer is kept in %rbx while an array lives, the CFA stays based on %rsp
# expect: refuted array

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rbx
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbx, -16
	mov	%rsp, %rbx
	.ifndef	WRONG
	.cfi_def_cfa_register	%rbx
	.endif
	shl	$4, %rdi
	sub	%rdi, %rsp
array:
	mov	%rdi, (%rsp)
	mov	(%rsp), %rax
	mov	%rbx, %rsp
	.ifndef	WRONG
	.cfi_def_cfa_register	%rsp
	.endif
	inc	%eax
	pop	%rbx
	.cfi_def_cfa_offset	8
	.cfi_restore	%rbx
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
