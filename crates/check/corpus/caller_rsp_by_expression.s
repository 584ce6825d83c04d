# bug: like GHC's StgRun: offsets count from the stack pointer, and an expression finds the caller's
# wrong: the expression is 8 bytes short
# expect: refuted saved

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	sub	$0x38, %rsp
	.cfi_adjust_cfa_offset	0x38
	mov	%rbx, 8(%rsp)
	mov	%r12, 16(%rsp)
	.cfi_def_cfa	%rsp, 0
	.cfi_offset	%rbx, 8
	.cfi_offset	%r12, 16
	.cfi_offset	%rip, 0x38
	.ifdef	WRONG
	# DW_CFA_val_expression rsp, DW_OP_breg7 56
	.cfi_escape	0x16, 0x07, 0x03, 0x77, 0xb8, 0x00
	.else
	# DW_CFA_val_expression rsp, DW_OP_breg7 64
	.cfi_escape	0x16, 0x07, 0x03, 0x77, 0xc0, 0x00
	.endif
saved:
	mov	%edi, %ebx
	lea	1(%rdi), %r12d
	call	leaf
	add	%r12d, %eax
	add	%ebx, %eax
	mov	8(%rsp), %rbx
	mov	16(%rsp), %r12
	add	$0x38, %rsp
	.cfi_def_cfa	%rsp, 8
	.cfi_restore	%rbx
	.cfi_restore	%r12
	.cfi_restore	%rsp
	.cfi_offset	%rip, -8
	ret
	.cfi_endproc
	.size	f, . - f

	.type	leaf, @function
leaf:
	.cfi_startproc
	lea	1(%rdi), %eax
	ret
	.cfi_endproc
	.size	leaf, . - leaf

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
