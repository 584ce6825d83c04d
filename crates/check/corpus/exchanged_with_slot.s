# bug: none reported: a register saved by xchg
# wrong: xchg saves %rbx in a slot and loads it, which the table does not say
# expect: refuted exchanged

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rdi
	.cfi_adjust_cfa_offset	8
	xchg	%rbx, (%rsp)
	.ifndef	WRONG
	.cfi_rel_offset	%rbx, 0
	.endif
exchanged:
	lea	1(%rbx), %eax
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
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main
