# bug: none reported: an array on the stack whose end is a saved register, filled by string instructions
# wrong: %rbx is saved twice, and the table names the copy that the second of two string instructions goes over
# expect: refuted stored

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rbx
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbx, -16
	sub	$32, %rsp
	.cfi_def_cfa_offset	48
	mov	%rbx, 24(%rsp)
	xor	%ebx, %ebx
	xor	%eax, %eax
	mov	%rsp, %rdi
	mov	$3, %ecx
	rep stosq
	stosq
	.ifdef	WRONG
	.cfi_offset	%rbx, -24
	.endif
stored:
	nop
	add	$32, %rsp
	.cfi_def_cfa_offset	16
	.ifdef	WRONG
	.cfi_offset	%rbx, -16
	.endif
	pop	%rbx
	.cfi_def_cfa_offset	8
	.cfi_restore	%rbx
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
