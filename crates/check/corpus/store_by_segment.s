# bug: none reported: %gs begins at 0, unless somebody has set it
# wrong: %rbx is saved twice, and the table names the copy that a store relative to %gs goes over
# expect: refuted stored

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rbx
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbx, -16
	sub	$8, %rsp
	.cfi_def_cfa_offset	24
	mov	%rbx, (%rsp)
	xor	%ebx, %ebx
	movq	$0, %gs:(%rsp)
	.ifdef	WRONG
	.cfi_offset	%rbx, -24
	.endif
stored:
	nop
	add	$8, %rsp
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
