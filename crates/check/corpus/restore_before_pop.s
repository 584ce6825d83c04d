# bug: none reported: the epilogue's directives before its instructions
# wrong: .cfi_restore stands before the instructions that load the register
# expect: refuted early

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%r15
	.cfi_adjust_cfa_offset	8
	.cfi_rel_offset	%r15, 0
	lea	1(%rdi), %r15
	.ifdef	WRONG
	.cfi_restore	%r15
	.endif
early:
	mov	%r15, %rax
	nop
	pop	%r15
	.cfi_adjust_cfa_offset	-8
	.ifndef	WRONG
	.cfi_restore	%r15
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
