# bug: LLVM issue 220720, class A, where both ways out are tail calls
# wrong: the add is above the branch, its CFI only before the jumps
# expect: refuted hoisted other

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rax
	.cfi_def_cfa_offset	16
	mov	%rdi, (%rsp)
	mov	(%rsp), %rdi
	add	$8, %rsp
	.ifndef	WRONG
	.cfi_def_cfa_offset	8
	.endif
hoisted:
	test	%rdi, %rdi
	je	.Lzero
	dec	%rdi
	.cfi_def_cfa_offset	8
	jmp	g
.Lzero:
	.ifdef	WRONG
	.cfi_def_cfa_offset	16
	.endif
other:
	mov	$9, %edi
	.cfi_def_cfa_offset	8
	jmp	g
	.cfi_endproc
	.size	f, . - f

	.globl	g
	.type	g, @function
g:
	.cfi_startproc
	mov	%edi, %eax
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
