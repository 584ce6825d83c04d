# bug: like OpenSSL PR 2589 (missing directives), with an 8-bit write
# wrong: setb %bl changes %rbx; the table calls %rbx unchanged
# expect: refuted clobbered

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rbx
	.cfi_adjust_cfa_offset	8
	.ifndef	WRONG
	.cfi_rel_offset	%rbx, 0
	.endif
	cmp	$3, %edi
	setb	%bl
clobbered:
	movzbl	%bl, %eax
	pop	%rbx
	.cfi_adjust_cfa_offset	-8
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
	mov	$2, %edi
	call	f
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main
