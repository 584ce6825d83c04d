# bug: GCC PR 12990
# wrong: the code behind a return in the middle inherits the state of the return
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
	test	%edi, %edi
	je	.Lzero
	lea	1(%rbx), %eax
	.ifndef	WRONG
	.cfi_remember_state
	.endif
	pop	%rbx
	.cfi_def_cfa_offset	8
	.cfi_restore	%rbx
	ret
.Lzero:
	.ifndef	WRONG
	.cfi_restore_state
	.endif
behind:
	mov	$5, %ebx
	mov	%ebx, %eax
	pop	%rbx
	.cfi_def_cfa_offset	8
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
	xor	%edi, %edi
	call	f
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main
