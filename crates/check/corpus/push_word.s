# bug: like coreclr PR 381 (wrong adjusts), with a push of two bytes
# wrong: a 16-bit push is described like one of eight bytes
# expect: refuted after_push

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	pushw	%di
	.ifdef	WRONG
	.cfi_adjust_cfa_offset	8
	.else
	.cfi_adjust_cfa_offset	2
	.endif
after_push:
	movzwl	(%rsp), %eax
	popw	%cx
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
