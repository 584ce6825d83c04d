# bug: getsentry/symbolic PR 978
# wrong: .cfi_def_cfa_offset is given the size of one push, not of all up to there
# expect: refuted second

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rbp
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbp, -16
	push	%rbx
	.ifdef	WRONG
	.cfi_def_cfa_offset	16
	.else
	.cfi_def_cfa_offset	24
	.endif
	.cfi_offset	%rbx, -24
second:
	mov	%edi, %ebx
	lea	(%rbx,%rbx), %ebp
	mov	%ebp, %eax
	pop	%rbx
	.cfi_def_cfa_offset	16
	pop	%rbp
	.cfi_def_cfa_offset	8
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
