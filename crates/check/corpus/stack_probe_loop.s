# bug: like rust compiler-builtins #304 (stack probes without CFI), in the form of GCC's -fstack-clash-protection
# wrong: the loop that allocates page by page keeps the CFA of its first iteration
# expect: refuted page

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	lea	-8192(%rsp), %r11
	.ifndef	WRONG
	.cfi_def_cfa	%r11, 8200
	.endif
page:
	sub	$4096, %rsp
	orq	$0, (%rsp)
	cmp	%r11, %rsp
	jne	page
	.ifndef	WRONG
	.cfi_def_cfa_register	%rsp
	.else
	.cfi_def_cfa	%rsp, 8200
	.endif
	sub	$24, %rsp
	.cfi_def_cfa_offset	8224
	mov	%edi, 12(%rsp)
	mov	12(%rsp), %eax
	add	$8216, %rsp
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
