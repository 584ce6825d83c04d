# bug: like OpenSSL PR 10653 (missing directives), in Intel syntax
# wrong: the second of three pushes is not described
# expect: refuted second

	.intel_syntax	noprefix
	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	rbx
	.cfi_adjust_cfa_offset	8
	.cfi_rel_offset	rbx, 0
	push	r13
	.ifndef	WRONG
	.cfi_adjust_cfa_offset	8
	.cfi_rel_offset	r13, 0
	.endif
second:
	push	r14
	.cfi_adjust_cfa_offset	8
	.cfi_rel_offset	r14, 0
	mov	ebx, edi
	lea	r13d, [rbx + rbx]
	lea	r14d, [r13 + rbx]
	mov	eax, r14d
	pop	r14
	.cfi_adjust_cfa_offset	-8
	.cfi_restore	r14
	pop	r13
	.ifndef	WRONG
	.cfi_adjust_cfa_offset	-8
	.cfi_restore	r13
	.endif
	pop	rbx
	.cfi_adjust_cfa_offset	-8
	.cfi_restore	rbx
	ret
	.cfi_endproc
	.size	f, . - f

	.att_syntax
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
