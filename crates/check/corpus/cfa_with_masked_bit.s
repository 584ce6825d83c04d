# bug: none reported: an expression that sets a bit of the CFA, which is set already for most stacks
# wrong: the CFA is the right one only where bit 7 of it is set
# expect: refuted masked

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	.ifdef	WRONG
	.cfi_escape	0x0f, 6, 0x77, 8, 0x0a, 0x80, 0, 0x21	# DW_OP_breg7 8; DW_OP_const2u 0x80; DW_OP_or
	.else
	.cfi_escape	0x0f, 2, 0x77, 8			# DW_OP_breg7 8
	.endif
masked:
	lea	1(%rdi), %eax
	ret
	.cfi_endproc
	.size	f, . - f

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	call	f
	sub	$128, %rsp
	.cfi_adjust_cfa_offset	128
	call	f
	add	$128, %rsp
	.cfi_adjust_cfa_offset	-128
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main
