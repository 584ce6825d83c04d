# bug: none reported: 0x2e, the size of arguments, written as 0x0e, the CFA's offset, in a .cfi_escape
# wrong: what says how much is pushed for a call moves the CFA
# expect: refuted pushed

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
	push	$1
	push	$2
	.ifdef	WRONG
	.cfi_escape	0x0e, 0x20	# DW_CFA_def_cfa_offset 32
	.else
	.cfi_escape	0x2e, 0x10	# DW_CFA_GNU_args_size 16
	.endif
pushed:
	call	g
	add	$16, %rsp
	.cfi_escape	0x2e, 0x0
	.cfi_def_cfa_offset	16
	leave
	.cfi_def_cfa	%rsp, 8
	ret
	.cfi_endproc
	.size	f, . - f

	.globl	g
	.type	g, @function
g:
	.cfi_startproc
	mov	8(%rsp), %eax
	add	16(%rsp), %eax
	ret
	.cfi_endproc
	.size	g, . - g

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	call	f
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main
