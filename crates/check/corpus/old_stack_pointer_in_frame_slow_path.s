# bug: OpenSSL PR 8109, AES_cbc_encrypt's slow path
# wrong: the slow path exchanges %rsp with a realigned copy and keeps the old one at 16(%rsp), but describes 24(%rsp)
# expect: refuted slow

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rbp
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbp, -16
	push	%r15
	.cfi_def_cfa_offset	24
	.cfi_offset	%r15, -24
	mov	%edi, %r15d
	cmp	$512, %edi
	.cfi_remember_state
	jb	.Lslow
	lea	1(%r15), %eax
	pop	%r15
	.cfi_def_cfa_offset	16
	.cfi_restore	%r15
	pop	%rbp
	.cfi_def_cfa_offset	8
	.cfi_restore	%rbp
	ret
.Lslow:
	.cfi_restore_state
	lea	-88(%rsp), %rbp
	and	$-64, %rbp
	xchg	%rsp, %rbp
	.cfi_def_cfa_register	%rbp
	mov	%rbp, 16(%rsp)
	.ifdef	WRONG
	.cfi_escape	0xf,0x5,0x77,0x18,0x6,0x23,0x18	# CFA = [%rsp+24]+24
	.else
	.cfi_escape	0xf,0x5,0x77,0x10,0x6,0x23,0x18	# CFA = [%rsp+16]+24
	.endif
slow:
	mov	$5, %ebp
	lea	(%r15,%rbp), %eax
	mov	16(%rsp), %rsi
	.cfi_def_cfa	%rsi, 24
	mov	(%rsi), %r15
	.cfi_restore	%r15
	mov	8(%rsi), %rbp
	.cfi_restore	%rbp
	lea	16(%rsi), %rsp
	.cfi_def_cfa	%rsp, 8
	ret
	.cfi_endproc
	.size	f, . - f

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	mov	$600, %edi
	call	f
	mov	$3, %edi
	call	f
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main
