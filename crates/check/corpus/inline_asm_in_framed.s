# bug: like LLVM/clang #58493 (CFI in inline assembly): directives copied into a function with frame pointer
# wrong: the CFA is based on %rbp, which the push does not change; the adjustment is one too many
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
#APP
	push	%rdi
	.ifdef	WRONG
	.cfi_adjust_cfa_offset	8
	.endif
pushed:
	mov	(%rsp), %eax
	pop	%rdi
	.ifdef	WRONG
	.cfi_adjust_cfa_offset	-8
	.endif
#NO_APP
	pop	%rbp
	.cfi_def_cfa	%rsp, 8
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
