# bug: none reported: frames whose size only the program knows
# wrong: memory is allocated by a length that only the program knows; the CFA goes back to %rsp
# expect: refuted allocated

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
	lea	15(,%rdi,8), %rax
	and	$-16, %rax
	sub	%rax, %rsp
	.ifdef	WRONG
	.cfi_def_cfa	%rsp, 24
	.endif
allocated:
	mov	%rdi, (%rsp)
	mov	(%rsp), %rax
	leave
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
	mov	$9, %edi
	call	f
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main
