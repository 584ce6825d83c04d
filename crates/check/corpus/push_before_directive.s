# bug: LLVM issue 220720, class B
# wrong: the scheduler puts an instruction between the push of an outgoing argument and its directive
# expect: refuted between

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rbx
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbx, -16
	mov	%edi, %ebx
	push	$7
	.ifndef	WRONG
	.cfi_adjust_cfa_offset	8
	.endif
between:
	mov	%ebx, %edi
	.ifdef	WRONG
	.cfi_adjust_cfa_offset	8
	.endif
	call	g
	add	$8, %rsp
	.cfi_adjust_cfa_offset	-8
	pop	%rbx
	.cfi_def_cfa_offset	8
	ret
	.cfi_endproc
	.size	f, . - f

	.globl	g
	.type	g, @function
g:
	.cfi_startproc
	mov	8(%rsp), %eax
	add	%edi, %eax
	ret
	.cfi_endproc
	.size	g, . - g

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
