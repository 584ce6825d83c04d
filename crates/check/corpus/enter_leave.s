# bug: like OpenSSL PR 10653 (missing directives), with enter
# wrong: enter is not described
# expect: refuted entered

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	enter	$32, $0
	.ifndef	WRONG
	.cfi_def_cfa	%rbp, 16
	.cfi_offset	%rbp, -16
	.endif
entered:
	mov	%edi, -4(%rbp)
	mov	-4(%rbp), %eax
	leave
	.ifndef	WRONG
	.cfi_def_cfa	%rsp, 8
	.cfi_restore	%rbp
	.endif
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
