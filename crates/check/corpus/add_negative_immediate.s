# bug: like LLVM #167391 (an adjustment missed); compilers write add $-128, which is shorter than sub $128
# wrong: the subtraction is taken for the end of a frame of 128 bytes, and the end for its begin
# expect: refuted body

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	add	$-128, %rsp
	.ifdef	WRONG
	.cfi_adjust_cfa_offset	-128
	.else
	.cfi_adjust_cfa_offset	128
	.endif
body:
	mov	%rdi, (%rsp)
	mov	(%rsp), %rax
	sub	$-128, %rsp
	.ifdef	WRONG
	.cfi_adjust_cfa_offset	128
	.else
	.cfi_adjust_cfa_offset	-128
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
