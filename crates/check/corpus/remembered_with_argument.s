# bug: like LLVM BOLT PR 102216 (unbalanced remember)
# wrong: the state is remembered while an argument is on the stack, and restored for code without it
# expect: refuted behind

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rbx
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbx, -16
	mov	%edi, %ebx
	.ifndef	WRONG
	.cfi_remember_state
	.endif
	push	$1
	.cfi_adjust_cfa_offset	8
	.ifdef	WRONG
	.cfi_remember_state
	.endif
	call	g
	pop	%rdx
	.cfi_adjust_cfa_offset	-8
	test	%eax, %eax
	jne	.Lmore
	pop	%rbx
	.cfi_def_cfa_offset	8
	.cfi_restore	%rbx
	ret
.Lmore:
	.cfi_restore_state
behind:
	lea	1(%rbx), %eax
	pop	%rbx
	.cfi_def_cfa_offset	8
	.cfi_restore	%rbx
	ret
	.cfi_endproc
	.size	f, . - f

	.globl	g
	.type	g, @function
g:
	.cfi_startproc
	mov	%edi, %eax
	and	8(%rsp), %eax
	ret
	.cfi_endproc
	.size	g, . - g

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
