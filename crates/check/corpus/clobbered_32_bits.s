# bug: like OpenSSL PR 2589 (missing directives), with a 32-bit write
# wrong: %r13d is written, which clears the upper half of %r13 as well; the table calls %r13 unchanged
# expect: refuted clobbered

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	mov	%r13, -8(%rsp)
	.ifndef	WRONG
	.cfi_offset	%r13, -16
	.endif
	mov	%edi, %r13d
clobbered:
	lea	1(%r13), %eax
	mov	-8(%rsp), %r13
	.cfi_restore	%r13
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
