# bug: none reported: the return address' place
# wrong: the return address is said to be a word below its place, the CFA is right
# expect: refuted ruled

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rbp
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbp, -16
	.ifdef	WRONG
	.cfi_offset	%rip, -16
	.endif
ruled:
	mov	%edi, %ebp
	mov	%ebp, %eax
	pop	%rbp
	.cfi_def_cfa_offset	8
	.cfi_restore	%rbp
	.ifdef	WRONG
	.cfi_offset	%rip, -8
	.endif
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
