# bug: none reported: code that saves the processor's state on the stack, as dynamic linkers and fiber libraries do
# wrong: %rbx is saved twice, and the table names the copy that XSAVE stores over
# expect: refuted stored

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rbp
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbp, -16
	mov	%rsp, %rbp
	.cfi_def_cfa_register	%rbp
	push	%rbx
	.cfi_offset	%rbx, -24
	sub	$1032, %rsp
	and	$-64, %rsp
	mov	%rbx, 160(%rsp)
	xor	%ebx, %ebx
	mov	$7, %eax		# x87, SSE, AVX
	xor	%edx, %edx
	pcmpeqd	%xmm0, %xmm0
	xsave	(%rsp)
	.ifdef	WRONG
	.cfi_escape	0x10, 0x03, 0x03, 0x77, 0xa0, 0x01	# rbx is at *(rsp+160)
	.endif
stored:
	nop
	mov	-8(%rbp), %rbx
	.cfi_restore	%rbx
	leave
	.cfi_def_cfa	%rsp, 8
	.cfi_restore	%rbp
	ret
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
