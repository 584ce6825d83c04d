# bug: none reported: a stack aligned around a call by push %rsp; push (%rsp); and
# wrong: the CFA is counted from %rsp behind the and, whose effect is not known
# expect: refuted aligned

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rsp
	.cfi_adjust_cfa_offset	8
	push	(%rsp)
	.cfi_adjust_cfa_offset	8
	and	$-16, %rsp
	.ifndef	WRONG
	.cfi_escape	0xf,0x5,0x77,0x8,0x6,0x23,0x8	# CFA = [%rsp+8]+8
	.endif
aligned:
	call	g
	mov	8(%rsp), %rsp
	.cfi_def_cfa	%rsp, 8
	ret
	.cfi_endproc
	.size	f, . - f

	.globl	g
	.type	g, @function
g:
	.cfi_startproc
	mov	$1, %eax
	ret
	.cfi_endproc
	.size	g, . - g

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	call	f
	sub	$8, %rsp
	.cfi_adjust_cfa_offset	8
	call	f
	add	$8, %rsp
	.cfi_adjust_cfa_offset	-8
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main
