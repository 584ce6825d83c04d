# bug: like OpenSSL PR 2589 (offsets of pushes wrong): the return address forgotten
# wrong: .cfi_def_cfa_offset counts the frame only, not the return address
# expect: refuted body

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	sub	$56, %rsp
	.ifdef	WRONG
	.cfi_def_cfa_offset	56
	.else
	.cfi_def_cfa_offset	64
	.endif
body:
	mov	%edi, 12(%rsp)
	mov	12(%rsp), %eax
	add	$56, %rsp
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
