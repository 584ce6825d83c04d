# bug: like coreclr PR 381 (missing adjusts), with the flags
# wrong: the saved flags are not described
# expect: refuted after_pushf

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	pushf
	.ifndef	WRONG
	.cfi_adjust_cfa_offset	8
	.endif
after_pushf:
	xor	%eax, %eax
	cmp	%edi, %esi
	setb	%al
	popf
	.ifndef	WRONG
	.cfi_adjust_cfa_offset	-8
	.endif
	ret
	.cfi_endproc
	.size	f, . - f

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	mov	$3, %edi
	mov	$2, %esi
	call	f
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main
