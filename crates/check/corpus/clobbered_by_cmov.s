# bug: like OpenSSL PR 2589 (missing directives), with a conditional move
# wrong: a conditional move may change %rbp, which the table calls unchanged
# expect: refuted selected

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rbp
	.cfi_adjust_cfa_offset	8
	.ifndef	WRONG
	.cfi_rel_offset	%rbp, 0
	.endif
	test	%edi, %edi
	cmovz	%rsi, %rbp
selected:
	mov	%rbp, %rax
	pop	%rbp
	.cfi_adjust_cfa_offset	-8
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
	xor	%edi, %edi
	mov	$4, %esi
	call	f
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main
