# bug: OpenSSL 3.0 in Debian 12, `lea 0x58(%rsp), %rsp; rep ret`
# wrong: the CFA of the whole frame is kept for the return
# expect: refuted at_return

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	lea	-0x58(%rsp), %rsp
	.cfi_adjust_cfa_offset	0x58
	movups	%xmm0, 0x10(%rsp)
	movups	0x10(%rsp), %xmm0
	lea	0x58(%rsp), %rsp
	.ifndef	WRONG
	.cfi_adjust_cfa_offset	-0x58
	.endif
at_return:
	rep	ret
	.cfi_endproc
	.size	f, . - f

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	call	f
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main
