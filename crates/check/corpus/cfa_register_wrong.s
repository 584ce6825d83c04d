# bug: none reported: another register
# wrong: %rbx is named as the base of the CFA, the code uses %rbp
# expect: refuted based

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
	.cfi_def_cfa_register	%rbx
	.else
	.cfi_def_cfa_register	%rbp
	.endif
based:
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
