# bug: LLVM D14021: call and pop to learn the own address
# wrong: the word that the call pushes is not described
# expect: refuted called

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rbx
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbx, -16
	call	.Lhere
.Lhere:
	.ifndef	WRONG
	.cfi_adjust_cfa_offset	8
	.endif
called:
	pop	%rbx
	.ifndef	WRONG
	.cfi_adjust_cfa_offset	-8
	.endif
	mov	%ebx, %eax
	pop	%rbx
	.cfi_def_cfa_offset	8
	ret
	.cfi_endproc
	.size	f, . - f

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	call	f
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main
