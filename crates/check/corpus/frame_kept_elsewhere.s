# bug: OpenSSL's AES_cbc_encrypt, slow path (PR 8109)
# wrong: the offset of what was pushed is forgotten where the old stack pointer is loaded again
# expect: refuted loaded

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	cmp	$3, %edi
	je	out
	push	%rbx
	.cfi_adjust_cfa_offset	8
	.cfi_offset	%rbx, -16
	push	%r12
	.cfi_adjust_cfa_offset	8
	.cfi_offset	%r12, -24
	mov	%edi, %ebx
	lea	-88(%rsp), %r12
	and	$-64, %r12
	xchg	%rsp, %r12
	.cfi_def_cfa_register	%r12
	mov	%r12, 16(%rsp)
	# The CFA is what is at rsp+16, plus 24.
	.cfi_escape	0x0f, 0x05, 0x77, 0x10, 0x06, 0x23, 0x18
	call	g
	mov	16(%rsp), %rsi
loaded:
	.ifdef	WRONG
	.cfi_def_cfa	%rsi, 8
	.else
	.cfi_def_cfa	%rsi, 24
	.endif
	mov	(%rsi), %r12
	.cfi_restore	%r12
	mov	8(%rsi), %rbx
	.cfi_restore	%rbx
	lea	16(%rsi), %rsp
	.cfi_def_cfa	%rsp, 8
out:
	ret
	.cfi_endproc
	.size	f, . - f

	.type	g, @function
g:
	.cfi_startproc
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	g, . - g

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	sub	$8, %rsp
	.cfi_def_cfa_offset	16
	mov	$3, %edi
	call	f
	mov	$4, %edi
	call	f
	xor	%eax, %eax
	add	$8, %rsp
	.cfi_def_cfa_offset	8
	ret
	.cfi_endproc
	.size	main, . - main
