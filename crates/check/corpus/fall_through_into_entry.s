# bug: like Linux powerpc vdso (a label reached by a path that never saved)
# wrong: a part that is only reached by falling through, with a word pushed, has the state of a function's entry
# expect: refuted part

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rdi
	.cfi_adjust_cfa_offset	8
	.cfi_endproc
	.size	f, . - f

	.type	part, @function
part:
	.cfi_startproc
	.ifndef	WRONG
	.cfi_def_cfa_offset	16
	.endif
	mov	(%rsp), %eax
	pop	%rdi
	.cfi_def_cfa_offset	8
	ret
	.cfi_endproc
	.size	part, . - part

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
