# bug: like GCC PR 12990 (a return in the middle), where later blocks go back and forth
# wrong: a block that releases the frame is laid out between two that have it; the second inherits the released state
# expect: refuted kept

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	sub	$40, %rsp
	.cfi_def_cfa_offset	48
	mov	%edi, 4(%rsp)
	test	%edi, %edi
	jne	.Lkept
	.cfi_remember_state
	add	$40, %rsp
	.cfi_def_cfa_offset	8
	xor	%eax, %eax
	ret
	.ifndef	WRONG
	.cfi_restore_state
	.endif
.Lkept:
kept:
	mov	4(%rsp), %eax
	dec	%eax
	jne	.Lmore
	add	$40, %rsp
	.ifdef	WRONG
	.cfi_restore_state
	.cfi_remember_state
	.else
	.cfi_remember_state
	.endif
	.cfi_def_cfa_offset	8
	ret
.Lmore:
	.cfi_restore_state
	mov	%eax, 4(%rsp)
	jmp	.Lkept
	.cfi_endproc
	.size	f, . - f

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
