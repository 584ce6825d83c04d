# bug: none reported: a copied line
# wrong: %r12 is popped, %rbx is said to be restored
# expect: refuted popped

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rbx
	.cfi_adjust_cfa_offset	8
	.cfi_rel_offset	%rbx, 0
	push	%r12
	.cfi_adjust_cfa_offset	8
	.cfi_rel_offset	%r12, 0
	mov	%edi, %ebx
	lea	1(%rbx), %r12d
	mov	%r12d, %eax
	pop	%r12
	.cfi_adjust_cfa_offset	-8
	.ifdef	WRONG
	.cfi_restore	%rbx
	.else
	.cfi_restore	%r12
	.endif
popped:
	add	%ebx, %eax
	pop	%rbx
	.cfi_adjust_cfa_offset	-8
	.cfi_restore	%rbx
	.cfi_restore	%r12
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
