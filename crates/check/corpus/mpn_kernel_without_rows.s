# bug: glibc 2.36, __mpn_mul_1 and its relatives
# wrong: two pushes under an entry with no row but the first
# expect: refuted first

	.text
	.globl	mul_1
	.type	mul_1, @function
mul_1:
	.cfi_startproc
	push	%rbx
	.ifndef	WRONG
	.cfi_adjust_cfa_offset	8
	.cfi_rel_offset	%rbx, 0
	.endif
first:
	push	%rbp
	.ifndef	WRONG
	.cfi_adjust_cfa_offset	8
	.cfi_rel_offset	%rbp, 0
	.endif
	mov	%rdx, %rbx
	mov	%rcx, %rbp
	xor	%r8d, %r8d
.Lnext:
	mov	(%rsi,%rbx,8), %rax
	mul	%rbp
	add	%r8, %rax
	adc	$0, %rdx
	mov	%rax, (%rdi,%rbx,8)
	mov	%rdx, %r8
	inc	%rbx
	jnz	.Lnext
	mov	%r8, %rax
	pop	%rbp
	.ifndef	WRONG
	.cfi_adjust_cfa_offset	-8
	.cfi_restore	%rbp
	.endif
	pop	%rbx
	.ifndef	WRONG
	.cfi_adjust_cfa_offset	-8
	.cfi_restore	%rbx
	.endif
	ret
	.cfi_endproc
	.size	mul_1, . - mul_1

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	lea	limbs_end(%rip), %rsi
	mov	%rsi, %rdi
	mov	$-2, %rdx
	mov	$10, %ecx
	call	mul_1
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main

	.data
	.quad	0x1111111111111111, -1
limbs_end:
