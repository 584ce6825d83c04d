# bug: OpenSSL 3.0 in Debian 12, a function with `sub $0x108, %rsp` and a constant CFA
# wrong: the frame is not described; nothing is pushed, so nothing else looks wrong
# expect: refuted body

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	sub	$0x108, %rsp
	.ifndef	WRONG
	.cfi_adjust_cfa_offset	0x108
	.endif
body:
	mov	%rdi, 0x80(%rsp)
	mov	0x80(%rsp), %rax
	add	$0x108, %rsp
	.ifndef	WRONG
	.cfi_adjust_cfa_offset	-0x108
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
