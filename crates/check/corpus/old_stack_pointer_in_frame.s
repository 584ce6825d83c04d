# bug: OpenSSL PR 9624, sha512_block_data_order_avx2
# wrong: the old %rsp is kept in the frame at a fixed distance from %rsp, which moves in the loop
# expect: refuted moved

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	mov	%rsp, %rax
	.cfi_def_cfa_register	%rax
	push	%rbx
	.cfi_offset	%rbx, -16
	sub	$96, %rsp
	and	$-32, %rsp
	mov	%rax, 72(%rsp)
	.cfi_escape	0xf,0x6,0x77,0xc8,0x0,0x6,0x23,0x8	# CFA = [%rsp+72]+8
	mov	$2, %ebx
.Lblock:
	sub	$64, %rsp
	.ifndef	WRONG
	.cfi_escape	0xf,0x6,0x77,0x88,0x1,0x6,0x23,0x8	# CFA = [%rsp+136]+8
	.endif
moved:
	mov	%rdi, (%rsp)
	mov	(%rsp), %rdi
	add	$64, %rsp
	.ifndef	WRONG
	.cfi_escape	0xf,0x6,0x77,0xc8,0x0,0x6,0x23,0x8	# CFA = [%rsp+72]+8
	.endif
	dec	%ebx
	jnz	.Lblock
	mov	72(%rsp), %rsi
	.cfi_def_cfa	%rsi, 8
	mov	-8(%rsi), %rbx
	.cfi_restore	%rbx
	mov	%rsi, %rsp
	.cfi_def_cfa_register	%rsp
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
