# bug: like OpenSSL PR 2589 (directives lost by a filter)
# wrong: two entries for one function leave a hole between them
# expect: refuted hole

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rbx
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbx, -16
	mov	%edi, %ebx
	.cfi_endproc
	.ifndef	WRONG
	.cfi_startproc
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbx, -16
	.endif
hole:
	add	%ebx, %ebx
	mov	%ebx, %eax
	.ifdef	WRONG
	.cfi_startproc
	.cfi_def_cfa_offset	16
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
