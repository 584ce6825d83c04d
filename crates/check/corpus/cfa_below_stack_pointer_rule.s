# bug: none reported: the CFA need not be the caller's stack pointer if a rule says where that is
# wrong: nothing says that the caller's stack pointer is 16 above the CFA
# expect: refuted moved

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rbx
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbx, -16
	mov	%rsp, %rbx
	.cfi_def_cfa	%rbx, 0
	.cfi_offset	%rbx, 0
	.cfi_offset	%rip, 8
	.ifndef	WRONG
	.cfi_val_offset	%rsp, 16
	.endif
moved:
	sub	$32, %rsp
	mov	%edi, (%rsp)
	mov	(%rsp), %eax
	mov	%rbx, %rsp
	pop	%rbx
	.cfi_def_cfa	%rsp, 8
	.cfi_offset	%rip, -8
	.cfi_restore	%rbx
	.ifndef	WRONG
	.cfi_restore	%rsp
	.endif
	ret
	.cfi_endproc
	.size	f, . - f

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	sub	$8, %rsp
	.cfi_adjust_cfa_offset	8
	mov	$3, %edi
	call	f
	xor	%eax, %eax
	add	$8, %rsp
	.cfi_adjust_cfa_offset	-8
	ret
	.cfi_endproc
	.size	main, . - main
