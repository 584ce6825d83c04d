# bug: LLVM issue 220720, class A
# wrong: the epilogue's add, common to both ways out, is moved above the compare; its CFI stays behind
# expect: refuted hoisted

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	sub	$24, %rsp
	.cfi_def_cfa_offset	32
	mov	%edi, 12(%rsp)
	mov	12(%rsp), %eax
	add	$24, %rsp
	.ifndef	WRONG
	.cfi_def_cfa_offset	8
	.endif
hoisted:
	cmp	$7, %eax
	je	.Lequal
	.cfi_def_cfa_offset	8
	xor	%eax, %eax
	ret
.Lequal:
	.cfi_def_cfa_offset	8
	mov	$1, %eax
	ret
	.cfi_endproc
	.size	f, . - f

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	mov	$3, %edi
	call	f
	mov	$7, %edi
	call	f
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main
