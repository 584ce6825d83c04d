# bug: none reported: shrink wrapping, for which LLVM has CFIInstrInserter
# wrong: the block that runs without saved registers comes last and is given the state of the block that saved them
# expect: refuted unsaved

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	test	%edi, %edi
	js	.Lnegative
	push	%rbx
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbx, -16
	lea	(%rdi,%rdi), %ebx
	mov	%ebx, %eax
	.cfi_remember_state
	pop	%rbx
	.cfi_def_cfa_offset	8
	.cfi_restore	%rbx
	ret
.Lnegative:
	.ifdef	WRONG
	.cfi_restore_state
	.endif
unsaved:
	mov	%edi, %eax
	neg	%eax
	ret
	.cfi_endproc
	.size	f, . - f

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	mov	$3, %edi
	call	f
	mov	$-3, %edi
	call	f
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main
