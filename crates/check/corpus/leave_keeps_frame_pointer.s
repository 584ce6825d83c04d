# bug: like OpenSSL PR 10653 (missing directives), of leave
# wrong: after leave the CFA stays based on %rbp, which is the caller's again
# expect: refuted after_leave

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rbp
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbp, -16
	mov	%rsp, %rbp
	.cfi_def_cfa_register	%rbp
	sub	$16, %rsp
	mov	%edi, -4(%rbp)
	mov	-4(%rbp), %eax
	leave
	.ifndef	WRONG
	.cfi_def_cfa	%rsp, 8
	.cfi_restore	%rbp
	.endif
after_leave:
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
