# bug: libgcc riscv save-restore ("CFA info is not correct in next 2 instruction")
# wrong: .cfi_def_cfa_register stands before the mov, while %rbp is still the caller's
# expect: refuted early

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rbp
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbp, -16
	.ifdef	WRONG
	.cfi_def_cfa_register	%rbp
	.endif
early:
	mov	%rsp, %rbp
	.ifndef	WRONG
	.cfi_def_cfa_register	%rbp
	.endif
	sub	$16, %rsp
	mov	%edi, -4(%rbp)
	mov	-4(%rbp), %eax
	leave
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
