# bug: Delve 3206, parca 841: consumers whose restore_state does not restore the CFA
# wrong: the directives suit such a consumer: they adjust the CFA again after the restore
# expect: refuted behind

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	sub	$24, %rsp
	.cfi_def_cfa_offset	32
	test	%edi, %edi
	.cfi_remember_state
	je	.Lzero
	mov	%edi, %eax
	add	$24, %rsp
	.cfi_def_cfa_offset	8
	ret
.Lzero:
	.cfi_restore_state
	.ifdef	WRONG
	.cfi_adjust_cfa_offset	24
	.endif
behind:
	mov	%edi, 8(%rsp)
	mov	8(%rsp), %eax
	add	$24, %rsp
	.cfi_def_cfa_offset	8
	ret
	.cfi_endproc
	.size	f, . - f

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	call	f
	mov	$3, %edi
	call	f
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main
