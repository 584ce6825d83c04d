# bug: like LLVM #167391 (a stack pointer adjusted without CFI): the size comes from a register
# wrong: the subtraction of a register is not described, its value is a constant
# expect: refuted allocated

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	mov	$0x3000, %eax
	sub	%rax, %rsp
	.ifndef	WRONG
	.cfi_def_cfa_offset	0x3008
	.endif
allocated:
	mov	%edi, 0x2000(%rsp)
	mov	0x2000(%rsp), %eax
	add	$0x3000, %rsp
	.cfi_def_cfa_offset	8
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
