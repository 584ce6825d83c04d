# bug: like coreclr PR 381 (missing directives), of the frame pointer
# wrong: after mov %rsp, %rbp the CFA stays based on %rsp, which then moves
# expect: refuted allocated

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
	sub	$32, %rsp
allocated:
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
