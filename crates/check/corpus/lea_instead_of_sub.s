# bug: like LLVM #164805 (a stack pointer adjusted without CFI), with lea
# wrong: the frame is allocated by lea, which keeps the flags, and is not described
# expect: refuted body

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	cmp	$5, %edi
	lea	-24(%rsp), %rsp
	.ifndef	WRONG
	.cfi_adjust_cfa_offset	24
	.endif
body:
	setb	%al
	movzbl	%al, %eax
	mov	%eax, 4(%rsp)
	lea	24(%rsp), %rsp
	.ifndef	WRONG
	.cfi_adjust_cfa_offset	-24
	.endif
	ret
	.cfi_endproc
	.size	f, . - f

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
