# bug: like OpenSSL's bn_mul_mont: the old stack pointer is kept above an array of a length that only the program knows
# wrong: the register that the slot was loaded into is taken for the stack pointer before the return address was pushed
# expect: refuted loaded

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	mov	%rsp, %rax
	.cfi_def_cfa_register	%rax
	push	%rbx
	.cfi_offset	%rbx, -16
	push	%rbp
	.cfi_offset	%rbp, -24
	lea	2(%rdi), %r9d
	neg	%r9
	lea	-24(%rsp, %r9, 8), %r10
	neg	%r9
	mov	%rsp, %r11
	and	$-256, %r10
	# The stack pointer goes down to %r10, a multiple of 128 bytes at once.
	sub	%r10, %r11
	and	$-128, %r11
	lea	(%r10, %r11), %rsp
	jmp	2f
1:	lea	-128(%rsp), %rsp
2:	mov	(%rsp), %r11
	cmp	%r10, %rsp
	ja	1b
	mov	%rax, 8(%rsp, %r9, 8)
	# The CFA is what is at rsp+8+r9*8, plus 8.
	.cfi_escape	0x0f, 0x0a, 0x77, 0x08, 0x79, 0x00, 0x38, 0x1e, 0x22, 0x06, 0x23, 0x08
	xor	%ebx, %ebx
	xor	%eax, %eax
	mov	%rax, (%rsp, %r9, 8)
3:	mov	%rbx, (%rsp, %rbx, 8)
	add	$1, %rbx
	cmp	%r9, %rbx
	jb	3b
	mov	-8(%rsp, %rbx, 8), %ebp
	mov	8(%rsp, %r9, 8), %rsi
loaded:
	.ifdef	WRONG
	.cfi_def_cfa	%rsi, 16
	.else
	.cfi_def_cfa	%rsi, 8
	.endif
	mov	%ebp, %eax
	mov	-16(%rsi), %rbp
	.cfi_restore	%rbp
	mov	-8(%rsi), %rbx
	.cfi_restore	%rbx
	lea	(%rsi), %rsp
	.cfi_def_cfa	%rsp, 8
	ret
	.cfi_endproc
	.size	f, . - f

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	mov	$3, %edi
	call	f
	mov	$90, %edi
	call	f
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main
