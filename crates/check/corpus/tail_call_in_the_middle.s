# bug: GCC PR 12990, with a tail call in place of the return
# wrong: the code behind a tail call inherits the state of the jump
# expect: refuted behind

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rbp
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbp, -16
	mov	%edi, %ebp
	test	%edi, %edi
	jne	.Lmore
	.cfi_remember_state
	pop	%rbp
	.cfi_def_cfa_offset	8
	.cfi_restore	%rbp
	jmp	g
.Lmore:
	.ifndef	WRONG
	.cfi_restore_state
	.endif
behind:
	call	g
	add	%ebp, %eax
	.ifdef	WRONG
	.cfi_restore_state
	.endif
	pop	%rbp
	.cfi_def_cfa_offset	8
	.cfi_restore	%rbp
	ret
	.cfi_endproc
	.size	f, . - f

	.globl	g
	.type	g, @function
g:
	.cfi_startproc
	lea	1(%rdi), %eax
	ret
	.cfi_endproc
	.size	g, . - g

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	mov	$3, %edi
	call	f
	xor	%edi, %edi
	call	f
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main
