# bug: like LLVM BOLT PR 102216 (unbalanced remember)
# wrong: one remember is missing, so the second restore takes the state remembered before the push
# expect: refuted second

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rbx
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbx, -16
	.ifdef	WRONG
	.cfi_remember_state
	.endif
	mov	%edi, %ebx
	push	%r12
	.cfi_def_cfa_offset	24
	.cfi_offset	%r12, -24
	mov	%edi, %r12d
	cmp	$1, %edi
	.cfi_remember_state
	je	.Lone
	.ifndef	WRONG
	.cfi_remember_state
	.endif
	cmp	$2, %edi
	je	.Ltwo
	pop	%r12
	.cfi_def_cfa_offset	16
	pop	%rbx
	.cfi_def_cfa_offset	8
	ret
.Lone:
	.cfi_restore_state
	lea	1(%r12), %eax
	pop	%r12
	.cfi_def_cfa_offset	16
	pop	%rbx
	.cfi_def_cfa_offset	8
	ret
.Ltwo:
	.cfi_restore_state
second:
	lea	2(%r12), %ebx
	mov	%ebx, %eax
	pop	%r12
	.cfi_def_cfa_offset	16
	pop	%rbx
	.cfi_def_cfa_offset	8
	ret
	.cfi_endproc
	.size	f, . - f

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	mov	$1, %edi
	call	f
	mov	$2, %edi
	call	f
	mov	$3, %edi
	call	f
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main
