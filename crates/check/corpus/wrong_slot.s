# bug: dmd PR 5521 (callee-saved offsets always wrong)
# wrong: the place of %rbx is counted without the return address
# expect: refuted pushed

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rbp
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbp, -16
	push	%rbx
	.cfi_def_cfa_offset	24
	.ifdef	WRONG
	.cfi_offset	%rbx, -16
	.else
	.cfi_offset	%rbx, -24
	.endif
pushed:
	mov	%edi, %ebx
	mov	%ebx, %eax
	pop	%rbx
	.cfi_def_cfa_offset	16
	.cfi_restore	%rbx
	pop	%rbp
	.cfi_def_cfa_offset	8
	.cfi_restore	%rbp
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
