# bug: none reported: the old stack pointer is pushed twice, so that it is found again whether the alignment skipped a word or not
# wrong: what was pushed before is forgotten where the old stack pointer is loaded again
# expect: refuted loaded

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rbx
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbx, -16
	push	%r12
	.cfi_def_cfa_offset	24
	.cfi_offset	%r12, -24
	mov	%edi, %ebx
	push	%rsp
	.cfi_def_cfa_offset	32
	push	(%rsp)
	.cfi_def_cfa_offset	40
	and	$-16, %rsp
	# The CFA is what is at rsp+8, plus 24.
	.cfi_escape	0x0f, 0x05, 0x77, 0x08, 0x06, 0x23, 0x18
	call	g
	mov	8(%rsp), %rsp
loaded:
	.ifdef	WRONG
	.cfi_def_cfa	%rsp, 8
	.else
	.cfi_def_cfa	%rsp, 24
	.endif
	add	%ebx, %eax
	pop	%r12
	.cfi_def_cfa	%rsp, 16
	.cfi_restore	%r12
	pop	%rbx
	.cfi_def_cfa_offset	8
	.cfi_restore	%rbx
	ret
	.cfi_endproc
	.size	f, . - f

	.type	g, @function
g:
	.cfi_startproc
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	g, . - g

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	mov	$3, %edi
	call	f
	push	%rax
	.cfi_def_cfa_offset	16
	mov	$4, %edi
	call	f
	xor	%eax, %eax
	pop	%rdx
	.cfi_def_cfa_offset	8
	ret
	.cfi_endproc
	.size	main, . - main
