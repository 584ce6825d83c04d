# bug: none reported: hexadecimal taken for decimal
# wrong: 0x18 bytes are allocated, 18 are described
# expect: refuted body

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	sub	$0x18, %rsp
	.ifdef	WRONG
	.cfi_adjust_cfa_offset	18
	.else
	.cfi_adjust_cfa_offset	0x18
	.endif
body:
	mov	%rdi, (%rsp)
	mov	(%rsp), %rax
	add	$0x18, %rsp
	.cfi_def_cfa_offset	8
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
