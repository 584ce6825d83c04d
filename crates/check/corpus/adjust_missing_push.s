# bug: coreclr PR 381, Implib.so #21 (missing adjusts)
# wrong: a push is not described at all
# expect: refuted after_push

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rbx
after_push:
	.ifndef	WRONG
	.cfi_adjust_cfa_offset	8
	.cfi_offset	%rbx, -16
	.endif
	lea	1(%rdi), %ebx
	mov	%ebx, %eax
	pop	%rbx
	.ifndef	WRONG
	.cfi_adjust_cfa_offset	-8
	.cfi_restore	%rbx
	.endif
	ret
	.cfi_endproc
	.size	f, . - f

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	mov	$41, %edi
	call	f
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main
